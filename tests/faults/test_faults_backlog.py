"""More calls in flight than ``max_pending``: the next one waits, where it can."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest
from group import LIMIT, SECRET, Crew, wait_for

import zcoll

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST = 4


@pytest.fixture(params=[None, SECRET], ids=["ipc", "tcp"])
def crew(request: pytest.FixtureRequest) -> Iterator[Crew]:
    with Crew(2, secret=request.param, max_pending=MOST) as one:
        yield one


def fill(comm: zcoll.Communicator) -> list[zcoll.Future[int]]:
    return [comm.allreduce_async(1) for _ in range(MOST)]


def collect(futures: list[zcoll.Future[int]]) -> list[int]:
    return [future.result(LIMIT) for future in futures]


@pytest.mark.parametrize("full", [0, 1])
def test_the_next_call_waits_until_one_has_ended(crew: Crew, full: int) -> None:
    beyond = threading.Event()  # the last call is made while the others are in flight
    made = threading.Event()

    def task(comm: zcoll.Communicator) -> list[int]:
        if comm.replica_rank == full:
            futures = fill(comm)
            beyond.set()
            futures.append(comm.allreduce_async(1))
            made.set()
        else:
            wait_for(beyond)
            assert not made.wait(0.3), "it did not wait"
            futures = [comm.allreduce_async(1)]
            wait_for(made)
            futures += fill(comm)
        return collect(futures)

    assert crew.run(task) == [[2] * (MOST + 1)] * 2


@pytest.mark.parametrize("full", [0, 1])
def test_it_raises_on_an_event_loop(crew: Crew, full: int) -> None:
    async def many(comm: zcoll.Communicator) -> list[int]:
        futures = fill(comm)
        with pytest.raises(zcoll.BacklogError, match="max_pending"):
            comm.allreduce_async(1)
        refused.set()
        return [await future for future in futures]

    refused = threading.Event()

    def task(comm: zcoll.Communicator) -> list[int]:
        if comm.replica_rank == full:
            return asyncio.run(many(comm))
        wait_for(refused)
        return collect(fill(comm))

    assert crew.run(task) == [[2] * MOST] * 2
    assert crew.run(lambda comm: comm.allreduce(1)) == [2, 2]


def test_it_raises_in_a_callback(crew: Crew) -> None:
    refused: Future[Any] = Future()

    def task(comm: zcoll.Communicator) -> list[int]:
        first = comm.allreduce_async(1)
        if comm.replica_rank == 1:
            first.result(LIMIT)
            refused.result(LIMIT)
            return collect(fill(comm))

        def callback(_: object) -> None:
            try:
                futures.extend(fill(comm))
                comm.allreduce_async(1)
            except BaseException as error:
                refused.set_result(error)

        futures: list[zcoll.Future[int]] = []
        first.add_done_callback(callback)
        assert isinstance(refused.result(LIMIT), zcoll.BacklogError)
        return collect(futures)

    assert crew.run(task) == [[2] * MOST] * 2


def test_a_call_that_waits_is_told_of_the_end_of_the_group(crew: Crew) -> None:
    full = threading.Event()

    def task(comm: zcoll.Communicator) -> str:
        if comm.replica_rank == 1:
            wait_for(full)
            comm.abort("no more")
            return ""
        futures = fill(comm)
        full.set()
        with pytest.raises(zcoll.AbortedError, match="no more"):
            comm.allreduce_async(1).result(LIMIT)
        return str(futures[0].exception(LIMIT))

    assert "no more" in crew.run(task)[0]

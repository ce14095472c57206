"""Limits: they name who is missing, and leave every call in flight."""

from __future__ import annotations

import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from group import LIMIT, Crew, run_group, wait_for
from ports import ipc_port, tcp_port

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable

SHORT = 0.1

CALLS: dict[str, tuple[str, Callable[..., Any], Any]] = {
    "allreduce": ("allreduce", lambda comm, **how: comm.allreduce(2, **how), 6),
    "broadcast": ("broadcast", lambda comm, **how: comm.broadcast("x", **how), "x"),
    "broadcast of the late one": (
        "broadcast",
        lambda comm, **how: comm.broadcast(comm.replica_rank, root=1, **how),
        1,
    ),
    "barrier": ("barrier", lambda comm, **how: comm.barrier(**how), None),
}


@pytest.mark.parametrize(("name", "call", "expected"), CALLS.values(), ids=CALLS)
def test_a_call_that_is_late_names_the_missing_and_stays_in_flight(
    trio: Crew, name: str, call: Callable[..., Any], expected: Any
) -> None:
    others_gave_up = threading.Barrier(3, timeout=LIMIT)

    def task(comm: zcoll.Communicator) -> Any:
        if comm.replica_rank == 1:
            others_gave_up.wait()
            return call(comm)
        begin = time.monotonic()
        with pytest.raises(zcoll.CollectiveTimeoutError) as caught:
            call(comm, timeout=SHORT)
        assert SHORT <= time.monotonic() - begin < SHORT + 5
        error = caught.value
        assert issubclass(type(error), TimeoutError)
        assert error.missing == [1]
        assert error.op == name
        assert "replica 1" in str(error)
        assert f"{SHORT:g} s" in str(error)
        others_gave_up.wait()
        return error.future.result(LIMIT)

    assert trio.run(task) == [expected] * 3
    # Nobody is out of step.
    assert trio.run(lambda comm: comm.allreduce([comm.replica_rank])) == [[0, 1, 2]] * 3


@pytest.mark.parametrize("late", [[0], [1], [0, 1], [2, 3], [0, 1, 3]])
def test_every_replica_learns_who_is_missing(
    crew_of: Callable[[int], Crew], late: list[int]
) -> None:
    others_gave_up = threading.Barrier(4, timeout=LIMIT)

    def task(comm: zcoll.Communicator) -> int:
        if comm.replica_rank in late:
            others_gave_up.wait()
            return comm.allreduce(1)
        with pytest.raises(zcoll.CollectiveTimeoutError) as caught:
            comm.allreduce(1, timeout=SHORT)
        others_gave_up.wait()
        assert caught.value.missing == late
        result: int = caught.value.future.result(LIMIT)
        return result

    assert crew_of(4).run(task) == [4] * 4


def test_a_timeout_says_what_the_missing_one_called_last(trio: Crew) -> None:
    others_gave_up = threading.Barrier(3, timeout=LIMIT)

    def task(comm: zcoll.Communicator) -> None:
        comm.barrier()
        if comm.replica_rank == 1:
            others_gave_up.wait()
            comm.broadcast(0)
            return
        with pytest.raises(zcoll.CollectiveTimeoutError, match="barrier") as caught:
            comm.broadcast(0, timeout=SHORT)
        others_gave_up.wait()
        caught.value.future.result(LIMIT)

    trio.run(task)


def test_later_calls_are_not_mixed_with_the_one_in_flight(trio: Crew) -> None:
    others_gave_up = threading.Barrier(3, timeout=LIMIT)

    def task(comm: zcoll.Communicator) -> list[Any]:
        if comm.replica_rank == 2:
            others_gave_up.wait()
            return [comm.allreduce("a"), comm.allreduce("b"), comm.allreduce("c")]
        futures = []
        for letter in "ab":
            with pytest.raises(zcoll.CollectiveTimeoutError) as caught:
                comm.allreduce(letter, timeout=SHORT)
            futures.append(caught.value.future)
        others_gave_up.wait()
        last = comm.allreduce("c")
        return [*(future.result(LIMIT) for future in futures), last]

    assert trio.run(task) == [["aaa", "bbb", "ccc"]] * 3


def test_a_timeout_can_be_pickled(trio: Crew) -> None:
    others_gave_up = threading.Barrier(3, timeout=LIMIT)

    def task(comm: zcoll.Communicator) -> None:
        if comm.replica_rank == 0:
            others_gave_up.wait()
            comm.barrier()
            return
        with pytest.raises(zcoll.CollectiveTimeoutError) as caught:
            comm.barrier(timeout=SHORT)
        copied = pickle.loads(pickle.dumps(caught.value))
        assert str(copied) == str(caught.value)
        assert copied.missing == [0]
        others_gave_up.wait()
        caught.value.future.result(LIMIT)

    trio.run(task)


def test_the_environment_sets_a_limit_for_every_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ZCOLL_TIMEOUT", f"{SHORT}")
    other_gave_up = threading.Event()

    def task(comm: zcoll.Communicator) -> int:
        if comm.replica_rank == 1:
            wait_for(other_gave_up)
            return comm.allreduce(1, timeout=LIMIT)
        with pytest.raises(zcoll.CollectiveTimeoutError) as caught:
            comm.allreduce(1)
        other_gave_up.set()
        assert caught.value.missing == [1]
        result: int = caught.value.future.result(LIMIT)
        return result

    assert run_group(2, task) == [2, 2]


def test_a_limit_that_suffices_changes_nothing(crew: Crew) -> None:
    def task(comm: zcoll.Communicator) -> tuple[int, int]:
        comm.barrier(timeout=LIMIT)
        return (
            comm.allreduce(1, timeout=LIMIT),
            comm.broadcast(5, root=0, timeout=LIMIT),
        )

    assert crew.run(task) == [(crew.size, 5)] * crew.size


def test_replicas_that_do_not_come_are_named() -> None:
    """Three of five wait, and know at the end of their time who is missing."""

    def come(rank: int) -> zcoll.RendezvousTimeoutError:
        with pytest.raises(zcoll.RendezvousTimeoutError) as caught:
            zcoll.connect("127.0.0.1", port, rank, 5, timeout=limits[rank])
        assert caught.value.timeout == limits[rank]
        assert issubclass(type(caught.value), TimeoutError)
        return caught.value

    limits = {0: 3.0, 2: 1.5, 4: 1.5}
    with ipc_port() as port:
        of_rank_0, of_rank_2, of_rank_4 = _in_threads(come, list(limits))
    for error in of_rank_2, of_rank_4:
        assert error.missing == [1, 3]
        assert "replicas 1, 3" in str(error)
    assert of_rank_0.missing == [1, 2, 3, 4]  # by then these two had gone as well


def test_rank_0_names_those_who_did_not_come() -> None:
    def come(rank: int) -> zcoll.RendezvousTimeoutError:
        with pytest.raises(zcoll.RendezvousTimeoutError) as caught:
            zcoll.connect("127.0.0.1", port, rank, 4, timeout=1 + rank)
        return caught.value

    with ipc_port() as port:
        of_rank_0, of_rank_2 = _in_threads(come, [0, 2])
    assert of_rank_0.missing == [1, 3]
    assert 0 in of_rank_2.missing  # it had gone by then


@pytest.mark.parametrize("secret", [None, "a secret that is long enough"])
def test_a_missing_rank_0_is_named(secret: str | None) -> None:
    port = tcp_port()
    begin = time.monotonic()
    with pytest.raises(zcoll.RendezvousTimeoutError) as caught:
        zcoll.connect("127.0.0.1", port, 1, 2, timeout=0.5, secret=secret)
    assert 0.5 <= time.monotonic() - begin < 5
    assert caught.value.missing == [0]


def test_after_a_failed_rendezvous_the_same_port_works() -> None:
    with ipc_port() as port:
        with pytest.raises(zcoll.RendezvousTimeoutError):
            zcoll.connect("127.0.0.1", port, 0, 2, timeout=0.2)

        def come(rank: int) -> int:
            with zcoll.connect("127.0.0.1", port, rank, 2, timeout=LIMIT) as comm:
                return comm.allreduce(1)

        assert _in_threads(come, [0, 1]) == [2, 2]


@pytest.mark.parametrize("first", [0, 1])
def test_whoever_comes_first_waits_for_the_others(first: int) -> None:
    began = threading.Event()

    with ipc_port() as port:

        def come(rank: int) -> int:
            if rank == first:
                began.set()
            else:
                wait_for(began)
                time.sleep(0.3)  # the first one is at the door by now
            with zcoll.connect("127.0.0.1", port, rank, 2, timeout=LIMIT) as comm:
                return comm.allreduce(1)

        assert _in_threads(come, [0, 1]) == [2, 2]


def _in_threads(come: Callable[[int], Any], ranks: list[int]) -> list[Any]:
    with ThreadPoolExecutor(len(ranks)) as pool:
        return [
            future.result(LIMIT) for future in [pool.submit(come, r) for r in ranks]
        ]

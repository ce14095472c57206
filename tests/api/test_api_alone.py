"""One replica alone: the same groups, ends and errors, without a thread or a socket."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def comm() -> Iterator[zcoll.Communicator]:
    before = set(threading.enumerate())
    one = zcoll.connect()
    yield one
    one.close()
    assert not set(threading.enumerate()) - before


def fails(a: Any, b: Any) -> Any:
    raise AssertionError("one value needs no function")


CALLS: dict[str, tuple[Callable[[zcoll.Communicator], Any], Any]] = {
    "allreduce": (lambda c: c.allreduce([1], fails), [1]),
    "reduce": (lambda c: c.reduce([1], fails), [1]),
    "broadcast": (lambda c: c.broadcast(None), None),
    "gather": (lambda c: c.gather("x"), ["x"]),
    "allgather": (lambda c: c.allgather("x"), ["x"]),
    "scatter": (lambda c: c.scatter(["x"]), "x"),
    "alltoall": (lambda c: c.alltoall(["x"]), ["x"]),
    "scan": (lambda c: c.scan("x", fails), "x"),
    "exscan": (lambda c: c.exscan("x", fails), None),
    "reduce_scatter": (lambda c: c.reduce_scatter(["x"], fails), "x"),
    "barrier": (lambda c: c.barrier(timeout=1, tag="t"), None),
}


def groups(comm: zcoll.Communicator) -> list[zcoll.Communicator]:
    made = [comm, comm.dup(), comm.split(7, key=-1), comm.group([0])]
    assert comm.split(None) is None
    inner = made[2] and made[2].split("inner")
    found = [group for group in [*made, inner] if group is not None]
    assert len(found) == 5
    return found


@pytest.mark.parametrize(("call", "expected"), CALLS.values(), ids=CALLS)
def test_every_call_in_every_group(
    comm: zcoll.Communicator, call: Callable[[zcoll.Communicator], Any], expected: Any
) -> None:
    for group in groups(comm):
        assert (group.replica_rank, group.num_replicas) == (0, 1)
        assert call(group) == expected
        assert group.active_ranks == [0]


def test_large_arrays_are_copies(comm: zcoll.Communicator) -> None:
    mine = np.ones(100_000)
    for group in groups(comm):
        (result,) = group.alltoall([mine])
        result += 1
        (again,) = group.allgather(mine)
        again += 1
    assert (mine == 1).all()


def test_wrong_lengths_are_errors_and_the_group_goes_on(
    comm: zcoll.Communicator,
) -> None:
    for group in groups(comm):
        with pytest.raises(zcoll.CollectiveError, match="a list of 1 values") as caught:
            group.scatter([1, 2])
        assert caught.value.rank == 0
        group.barrier()


def test_who_has_left_makes_no_more_calls_there(comm: zcoll.Communicator) -> None:
    for group in groups(comm)[1:]:
        group.leave()
        group.leave()
        with pytest.raises(zcoll.ClosedError, match="by leave"):
            group.barrier()
        group.teardown()
    assert comm.allreduce(1) == 1
    comm.leave()
    with pytest.raises(zcoll.ClosedError, match="by leave"):
        comm.barrier()
    comm.teardown()


def test_groups_end_with_the_one_above(comm: zcoll.Communicator) -> None:
    outer = comm.dup()
    inner = outer.dup()
    with outer:
        inner.barrier()
    for group in (outer, inner):
        with pytest.raises(zcoll.ClosedError):
            group.barrier()
    other = comm.dup()
    comm.teardown()
    with pytest.raises(zcoll.ClosedError):
        other.barrier()
    other.teardown()


def test_nothing_is_kept_of_groups_that_are_closed_or_dropped(
    comm: zcoll.Communicator,
) -> None:
    engine: Any = comm._engine
    for turn in range(2000):
        group = comm.split(turn)
        assert group is not None
        group.barrier()
        if turn % 2:
            group.close()
    del group
    comm.barrier()
    assert len(engine._coordinator.decisions.groups) == 1
    assert len(engine._replica.calling._groups) == 1


def test_an_abort_ends_every_group(comm: zcoll.Communicator) -> None:
    made = groups(comm)
    made[-1].abort("no disk")
    for group in made:
        with pytest.raises(zcoll.AbortedError, match="no disk"):
            group.barrier()
        group.teardown()


def test_calls_are_awaited_and_made_in_callbacks(comm: zcoll.Communicator) -> None:
    group = comm.dup()
    more: list[zcoll.Future[int]] = []

    async def main() -> list[int]:
        first = group.allreduce_async(1)
        first.add_done_callback(lambda _: more.append(comm.allreduce_async(2)))
        return [await first, await more[0], await group.allreduce_async(3)]

    assert asyncio.run(main()) == [1, 2, 3]


def test_threads_with_a_group_each(comm: zcoll.Communicator) -> None:
    found: list[list[int]] = []

    def work(group: zcoll.Communicator) -> None:
        found.append([group.allreduce(turn) for turn in range(200)])

    threads = [threading.Thread(target=work, args=(each,)) for each in groups(comm)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == [list(range(200))] * 5

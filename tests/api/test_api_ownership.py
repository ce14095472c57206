"""Whose memory is whose: inputs stay as they are, results are one's own."""

from __future__ import annotations

import copy
import itertools
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from group import LIMIT

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable

    from group import Crew
    from numpy.typing import NDArray

# Small ones travel in one message, large ones in chunks, and each in its own way.
SIZES = [1, 1000, 40_000, 700_000]
every_size = pytest.mark.parametrize("size", SIZES)


def filled(rank: int, size: int) -> NDArray[np.float64]:
    return np.full(size, rank + 1.0)


def assert_apart(arrays: list[NDArray[Any]]) -> None:
    """Check that no two arrays share memory."""
    for one, other in itertools.combinations(arrays, 2):
        assert not np.shares_memory(one, other)


@every_size
def test_allreduce_leaves_arrays_as_they_were(crew: Crew, size: int) -> None:
    """``a += b`` changes an array in place, but never the caller's."""
    mine = [filled(rank, size) for rank in range(crew.size)]
    results = crew.run(lambda comm: comm.allreduce(mine[comm.replica_rank]))
    for rank, array in enumerate(mine):
        assert (array == rank + 1).all()
    assert_apart(mine + results)


@every_size
def test_broadcast_gives_everybody_an_array_of_their_own(crew: Crew, size: int) -> None:
    for root in range(crew.size):
        mine = [filled(rank, size) for rank in range(crew.size)]

        def task(comm: zcoll.Communicator) -> NDArray[np.float64]:
            result: NDArray[np.float64] = comm.broadcast(
                mine[comm.replica_rank],  # noqa: B023 - run ends in this round
                root=root,  # noqa: B023
            )
            result += comm.replica_rank  # everybody changes it
            return result

        results = crew.run(task)
        for rank, result in enumerate(results):
            assert (result == root + 1 + rank).all()
        for rank, array in enumerate(mine):
            assert (array == rank + 1).all()
        assert_apart(mine + results)


@every_size
def test_the_result_is_not_a_value_even_if_the_function_returns_it(
    crew: Crew, size: int
) -> None:
    mine = [filled(rank, size) for rank in range(crew.size)]

    def task(comm: zcoll.Communicator) -> list[NDArray[np.float64]]:
        value = mine[comm.replica_rank]
        return [
            comm.allreduce(value, lambda one, _: one),
            comm.allreduce(value, lambda _, other: other),
        ]

    results = [result for both in crew.run(task) for result in both]
    assert_apart(mine + results)


def test_containers_are_copied_as_deep_as_they_go(crew: Crew) -> None:
    mine: list[dict[str, Any]] = [
        {"list": [rank], "deep": [[{rank}]]} for rank in range(crew.size)
    ]
    before = copy.deepcopy(mine)

    def merge(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        one["list"] += other["list"]
        one["deep"][0][0] |= other["deep"][0][0]
        return one

    results = crew.run(lambda comm: comm.allreduce(mine[comm.replica_rank], merge))
    expected = {
        "list": list(range(crew.size)),
        "deep": [[set(range(crew.size))]],
    }
    assert results == [expected] * crew.size
    assert mine == before
    for result in results:
        result["deep"][0][0].clear()
        result["list"].clear()
    assert mine == before


def test_a_list_result_is_fresh_on_every_replica(crew: Crew) -> None:
    mine: list[list[int]] = [[rank] for rank in range(crew.size)]

    def task(comm: zcoll.Communicator) -> tuple[list[int], list[int]]:
        value = mine[comm.replica_rank]
        return comm.allreduce(value), comm.broadcast(value)

    results = [result for pair in crew.run(task) for result in pair]
    assert len({id(result) for result in [*results, *mine]}) == 3 * crew.size
    assert mine == [[rank] for rank in range(crew.size)]


READ_ONLY: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "not writeable": lambda array: np.frombuffer(array.tobytes()),
    "broadcast view": lambda array: np.broadcast_to(array[:1], array.shape),
    "view of one": lambda array: np.frombuffer(array.tobytes())[::2],
}


@every_size
@pytest.mark.parametrize("protect", READ_ONLY.values(), ids=READ_ONLY)
def test_read_only_arrays_give_results_that_can_be_written(
    crew: Crew, size: int, protect: Callable[..., NDArray[np.float64]]
) -> None:
    def task(comm: zcoll.Communicator) -> None:
        mine = protect(filled(comm.replica_rank, size))
        assert not mine.flags.writeable
        total = comm.allreduce(mine)
        shared = comm.broadcast(mine, root=comm.num_replicas - 1)
        for result in total, shared:
            assert result.flags.writeable
            np.add(result, 1, out=result)
        assert (total == sum(range(1, comm.num_replicas + 1)) + 1).all()
        assert (shared == comm.num_replicas + 1).all()

    crew.run(task)


@every_size
def test_all_arrays_of_a_container_can_be_written(crew: Crew, size: int) -> None:
    def task(comm: zcoll.Communicator) -> None:
        mine = {name: filled(comm.replica_rank, size) for name in "abc"}
        mine["a"].flags.writeable = False
        for array in comm.broadcast(mine).values():
            array[:] = 7
        for part in comm.allreduce([mine]):
            for array in part.values():
                array[:] = 7

    crew.run(task)


@every_size
def test_a_value_may_be_changed_as_soon_as_an_async_call_has_returned(
    crew: Crew, size: int
) -> None:
    def task(comm: zcoll.Communicator) -> None:
        buffer = np.zeros(size)
        items: list[int] = []
        futures = []
        for step in range(6):
            buffer[:] = step
            items.append(step)
            futures.append(
                (step, comm.allreduce_async(buffer), comm.allreduce_async(items))
            )
            buffer[:] = np.nan
        items.clear()
        for step, arrays, lists in reversed(futures):
            assert (arrays.result(10) == step * comm.num_replicas).all()
            assert lists.result(10) == [*range(step + 1)] * comm.num_replicas

    crew.run(task)


@every_size
def test_a_value_may_be_changed_after_a_call_that_timed_out(
    crew_of: Callable[[int], Crew], size: int
) -> None:
    """Neither the sockets nor what is kept for a replay look at it again."""
    others_gave_up = threading.Barrier(3, timeout=LIMIT)

    def task(comm: zcoll.Communicator) -> NDArray[np.float64]:
        mine = np.ones(size)
        if comm.replica_rank == 2:
            others_gave_up.wait()
            result: NDArray[np.float64] = comm.allreduce(mine)
            return result
        with pytest.raises(zcoll.CollectiveTimeoutError) as caught:
            comm.allreduce(mine, timeout=0.05)
        mine[:] = 100
        others_gave_up.wait()
        outcome: NDArray[np.float64] = caught.value.future.result(10)
        return outcome

    for result in crew_of(3).run(task):
        assert (result == 3).all()


def test_results_of_one_future_are_the_same_object(crew: Crew) -> None:
    def task(comm: zcoll.Communicator) -> None:
        future = comm.allreduce_async([1])
        assert future.result(10) is future.result(10)

    crew.run(task)

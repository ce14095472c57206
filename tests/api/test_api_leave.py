"""A replica that leaves a group: the others go on without it."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import TYPE_CHECKING, Any

import pytest
from group import Crew, wait_for
from programs import model
from programs.styles import STYLES, Planned, roots
from values import same

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable

    Style = Callable[[zcoll.Communicator, list[Planned]], list[Any]]


def nest(a: str, b: str) -> str:
    return f"({a} {b})"


@pytest.mark.parametrize("style", STYLES, ids=[style.__name__ for style in STYLES])
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("operation", model.OPERATIONS)
def test_the_others_get_what_they_give_each_other(
    crew_of: Callable[[int], Crew], operation: str, size: int, style: Style
) -> None:
    """Whoever leaves, rank 0 included, and whoever of the others is the root."""
    for leaver in range(size):
        calls = [
            Planned(operation, size, str, nest, root)
            for root in roots(operation, size)
            if root != leaver or operation not in model.ROOTED
        ]

        def task(
            comm: zcoll.Communicator,
            leaver: int = leaver,
            calls: list[Planned] = calls,
        ) -> list[Any]:
            group = comm.dup()
            if comm.replica_rank == leaver:
                group.leave()
                return []
            return style(group, calls)

        for rank, results in enumerate(crew_of(size).run(task)):
            for call, result in zip(calls, results, strict=rank != leaver):
                assert same(call.expected([leaver])[rank], result)


@pytest.mark.parametrize("style", STYLES, ids=[style.__name__ for style in STYLES])
@pytest.mark.parametrize("leaver", [0, 2])
@pytest.mark.parametrize("operation", sorted(model.ROOTED))
def test_a_call_rooted_at_it_is_everybodys_error(
    trio: Crew, operation: str, leaver: int, style: Style
) -> None:
    def task(comm: zcoll.Communicator) -> zcoll.CollectiveError | None:
        group = comm.dup()
        if comm.replica_rank == leaver:
            group.leave()
            return None
        with pytest.raises(zcoll.CollectiveError) as caught:
            style(group, [Planned(operation, 3, str, nest, leaver)])
        assert group.allgather(1).count(1) == 2  # the group goes on
        return caught.value

    errors = [error for error in trio.run(task) if error is not None]
    assert [error.rank for error in errors] == [leaver] * 2
    for error in errors:
        assert f"its root, replica {leaver}, has left the group" in str(error)


def test_everybody_can_ask_who_is_left(trio: Crew) -> None:
    left = threading.Event()

    def task(comm: zcoll.Communicator) -> list[list[int]]:
        group = comm.dup()
        seen = [group.active_ranks]
        if comm.replica_rank == 1:
            group.leave()
            left.set()
            return []
        wait_for(left)
        seen.append(group.active_ranks)  # as of the last outcome
        group.barrier()
        seen.append(group.active_ranks)
        return seen

    everybody = [0, 1, 2]
    assert trio.run(task) == [
        *([everybody, everybody, [0, 2]], [], [everybody, everybody, [0, 2]]),
    ]


def test_what_it_has_called_before_counts(trio: Crew) -> None:
    """Although the others call it later, and it does not wait for the result."""
    left = threading.Event()

    def task(comm: zcoll.Communicator) -> list[str]:
        group = comm.dup()
        rank = comm.replica_rank
        if rank == 0:
            future = group.allreduce_async(str(rank), nest)
            group.leave()
            left.set()
            return [future.result(20)]
        wait_for(left)
        return [group.allreduce(str(rank), nest) for _ in range(2)]

    both = ["((0 1) 2)", "(1 2)"]
    assert trio.run(task) == [["((0 1) 2)"], both, both]


def test_loops_of_different_length_end(crew_of: Callable[[int], Crew]) -> None:
    batches = [3, 5, 0, 2, 5]

    def task(comm: zcoll.Communicator) -> list[Any]:
        epoch = comm.dup()
        rank = comm.replica_rank
        seen = [epoch.allgather((rank, step)) for step in range(batches[rank])]
        epoch.leave()
        comm.barrier()  # all meet again in the group that nobody has left
        return seen

    for rank, seen in enumerate(crew_of(5).run(task)):
        for step, values in enumerate(seen):
            assert values == [
                (other, step) if step < batches[other] else zcoll.ABSENT
                for other in range(5)
            ], rank


def test_the_one_that_has_left_makes_no_more_calls_there(trio: Crew) -> None:
    def task(comm: zcoll.Communicator) -> None:
        group = comm.dup()
        if comm.replica_rank == 1:
            group.leave()
            group.leave()  # a second time it does nothing
            for operation in model.OPERATIONS:
                call = Planned(operation, 3, str)
                for method in operation, f"{operation}_async":
                    with pytest.raises(zcoll.ClosedError, match="by leave"):
                        call.make(group, method)
            makers: list[Callable[[], Any]] = [group.dup, lambda: group.split(0)]
            for make_group in makers:
                with pytest.raises(zcoll.ClosedError, match="by leave"):
                    make_group()
        group.teardown()  # of those who have left it only closes their side

    trio.run(task)


def test_groups_of_those_who_are_left(trio: Crew) -> None:
    def task(comm: zcoll.Communicator) -> Any:
        group = comm.dup()
        if comm.replica_rank == 0:
            group.leave()
            return None
        dup, halves = group.dup(), group.split(0, key=-group.replica_rank)
        assert halves is not None
        with pytest.raises(zcoll.CollectiveError, match="replica 0 has left") as caught:
            group.group([1, 0])
        assert caught.value.rank == 0
        return dup.allgather(comm.replica_rank), halves.allgather(comm.replica_rank)

    assert trio.run(task) == [None, ([1, 2], [2, 1]), ([1, 2], [2, 1])]


def test_rank_0_may_leave_the_world_and_tear_down() -> None:
    """Its process goes on serving, and is the last to go."""
    left = threading.Event()

    def task(comm: zcoll.Communicator) -> list[Any]:
        rank = comm.replica_rank
        if rank == 0:
            comm.leave()
            left.set()
            comm.teardown()
            return []
        wait_for(left)
        factor = 10 * rank  # the function is rank 1's, and refers to its variable
        seen = [comm.allreduce(rank, lambda a, b: a * factor + b) for _ in range(50)]
        comm.teardown()
        return seen

    with Crew(3) as crew:
        assert crew.run(task) == [[], [12] * 50, [12] * 50]


def test_a_function_of_the_lowest_rank_that_cannot_travel(trio: Crew) -> None:
    def task(comm: zcoll.Communicator) -> Any:
        group = comm.dup()
        if comm.replica_rank == 0:
            group.leave()
            return None
        lock = threading.Lock()

        def locked(a: int, b: int) -> int:
            with lock:
                return a + b

        with pytest.raises(zcoll.EncodeError, match="locked") as caught:
            group.allreduce(1, locked)
        assert group.allreduce(1) == 2
        return caught.value.rank

    assert trio.run(task) == [None, 1, 1]


def test_everybody_may_leave(crew: Crew) -> None:
    def task(comm: zcoll.Communicator) -> list[int]:
        group = comm.dup()
        group.barrier()
        group.leave()
        group.close()
        return comm.allgather(comm.replica_rank)

    assert crew.run(task) == [list(range(crew.size))] * crew.size


def test_absent_is_one_object_that_is_not_false() -> None:

    assert repr(zcoll.ABSENT) == "zcoll.ABSENT"
    assert pickle.loads(pickle.dumps(zcoll.ABSENT)) is zcoll.ABSENT
    assert copy.deepcopy(zcoll.ABSENT) is zcoll.ABSENT
    assert zcoll.ABSENT is not None
    assert zcoll.ABSENT

"""Groups that are made of others: ranks, order, names, errors, ends."""

from __future__ import annotations

import functools
import operator
import threading
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from group import Crew, run_group, wait_for

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable


def made(comm: zcoll.Communicator | None) -> zcoll.Communicator:
    assert comm is not None
    return comm


# --- how they are made ------------------------------------------------------------


def test_split_puts_colors_together_in_the_order_of_keys(
    crew_of: Callable[[int], Crew],
) -> None:
    colors: list[int | str | None] = ["a", 0, "a", None, "a"]
    keys = [1, 0, 0, 0, 1]

    def task(comm: zcoll.Communicator) -> Any:
        rank = comm.replica_rank
        group = comm.split(colors[rank], keys[rank])
        if group is None:
            return None
        return group.replica_rank, group.num_replicas, group.allgather(rank)

    a = [2, 0, 4]
    assert crew_of(5).run(task) == [(1, 3, a), (0, 1, [1]), (0, 3, a), None, (2, 3, a)]


def test_a_number_and_its_text_are_two_colors(trio: Crew) -> None:
    colors: list[int | str] = [1, "1", 1]

    def task(comm: zcoll.Communicator) -> list[int]:
        group = made(comm.split(colors[comm.replica_rank]))
        return group.allgather(comm.replica_rank)

    assert trio.run(task) == [[0, 2], [1], [0, 2]]


def test_group_keeps_the_order_that_is_given(crew_of: Callable[[int], Crew]) -> None:
    def task(comm: zcoll.Communicator) -> Any:
        group = comm.group([3, 0, 2])
        return None if group is None else group.allgather(comm.replica_rank)

    assert crew_of(4).run(task) == [[3, 0, 2], None, [3, 0, 2], [3, 0, 2]]


def test_groups_of_groups(crew_of: Callable[[int], Crew]) -> None:
    """Ranks, roots and the ranks of a group are those of the group that is called."""

    def task(comm: zcoll.Communicator) -> Any:
        outer = comm.group([3, 2, 1])
        if outer is None:
            return None
        inner = outer.group([2, 0])
        if inner is None:
            return outer.replica_rank
        value = inner.broadcast(comm.replica_rank, root=1)
        return outer.replica_rank, inner.replica_rank, value

    assert crew_of(4).run(task) == [None, (2, 0, 3), 1, (0, 1, 3)]


@pytest.mark.parametrize(
    "ranks", [[], [0, 0], [0, 3], [-1], ["0"], [0.0], None, 1], ids=repr
)
def test_ranks_of_a_group_are_different_ranks(trio: Crew, ranks: Any) -> None:
    def task(comm: zcoll.Communicator) -> int:
        with pytest.raises(zcoll.ConfigurationError, match="rank"):
            comm.group(ranks)
        return comm.allreduce(1)

    assert trio.run(task) == [3] * 3


@pytest.mark.parametrize(("color", "key"), [(1.0, 0), ((1,), 0), (True, 0), (1, "0")])
def test_colors_are_numbers_or_texts_and_keys_numbers(
    trio: Crew, color: Any, key: Any
) -> None:
    def task(comm: zcoll.Communicator) -> int:
        with pytest.raises(zcoll.ConfigurationError, match="must be"):
            comm.split(color, key)
        return comm.allreduce(1)

    assert trio.run(task) == [3] * 3


def test_different_ranks_are_everybodys_error(trio: Crew) -> None:
    def task(comm: zcoll.Communicator) -> Any:
        return comm.group([0, 1] if comm.replica_rank == 2 else [0, 2])

    errors = trio.errors(zcoll.CollectiveError, task)
    for error in errors:
        assert error.rank == 2
        assert "[0, 2] and [0, 1]" in str(error)
    assert trio.run(lambda comm: comm.allreduce(1)) == [3] * 3


# --- they are independent ---------------------------------------------------------


def test_calls_of_different_groups_need_no_common_order(trio: Crew) -> None:
    def task(comm: zcoll.Communicator) -> list[str]:
        rank = comm.replica_rank
        groups = [comm.dup() for _ in range(3)]
        order = [(place + rank) % 3 for place in range(3)]
        futures = {n: groups[n].allreduce_async(f"{n}{rank}") for n in order}
        return [futures[n].result(20) for n in range(3)]

    assert trio.run(task) == [["000102", "101112", "202122"]] * 3


def test_threads_with_a_group_each_do_not_mind_each_other(trio: Crew) -> None:
    """Blocking calls of many threads, which are switched at any point."""
    threads, calls = 4, 40

    def task(comm: zcoll.Communicator) -> list[list[int]]:
        groups = [comm.dup() for _ in range(threads)]
        sums: list[list[int]] = [[] for _ in groups]

        def work(number: int) -> None:
            group = groups[number]
            for turn in range(calls):
                sums[number].append(group.allreduce(number + turn, timeout=20))

        workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(20)
        return sums

    expected = [[3 * (n + turn) for turn in range(calls)] for n in range(threads)]
    assert trio.run(task) == [expected] * 3


def test_a_slow_fold_in_one_group_does_not_hold_up_another(trio: Crew) -> None:
    folding, go_on = threading.Event(), threading.Event()

    def slow(a: int, b: int) -> int:
        folding.set()
        wait_for(go_on)
        return a + b

    def task(comm: zcoll.Communicator) -> tuple[int, int]:
        one, other = comm.dup(), comm.dup()
        slow_one = one.allreduce_async(1, slow)
        wait_for(folding)
        quick = other.allreduce(2, timeout=20)
        go_on.set()
        return slow_one.result(20), quick

    assert trio.run(task) == [(3, 6)] * 3


def test_a_group_without_rank_0_uses_the_function_of_its_lowest_rank(
    trio: Crew,
) -> None:
    def task(comm: zcoll.Communicator) -> str | None:
        group = comm.group([2, 1])
        if group is None:
            return None
        mark = f"by {comm.replica_rank}"  # which a pickle by reference would not have
        return group.allreduce(f"{comm.replica_rank}", lambda a, b: f"{a}{b} {mark}")

    assert trio.run(task) == [None, "21 by 2", "21 by 2"]


# --- what goes wrong --------------------------------------------------------------


def test_a_mismatch_in_a_group_leaves_the_others_alone(trio: Crew) -> None:
    def task(comm: zcoll.Communicator) -> Any:
        pair = comm.split("pair" if comm.replica_rank else None)
        if pair is not None:
            first = comm.replica_rank == 1
            call = pair.barrier if first else functools.partial(pair.allgather, 1)
            with pytest.raises(zcoll.MismatchError) as caught:
                call()
            assert f"of group {pair.name!r}" in str(caught.value)
            assert "replica 1: barrier()" in str(caught.value)  # ranks of the world
            assert "replica 2: allgather()" in str(caught.value)
            with pytest.raises(zcoll.MismatchError):
                pair.barrier()
        return comm.allgather(comm.replica_rank)

    assert trio.run(task) == [[0, 1, 2]] * 3


def test_errors_name_the_group(trio: Crew) -> None:
    both_gave_up = threading.Barrier(3, timeout=20)

    def task(comm: zcoll.Communicator) -> list[str]:
        group = comm.dup()
        with pytest.raises(zcoll.ReduceError) as failed:
            group.allreduce(1, lambda a, b: a // 0)
        texts = [str(failed.value), repr(group)]
        if comm.replica_rank == 2:
            both_gave_up.wait()
            group.barrier()
        else:
            with pytest.raises(zcoll.CollectiveTimeoutError) as caught:
                group.barrier(timeout=0.05)
            texts.append(str(caught.value))
            assert caught.value.missing == [2]
            assert caught.value.future is not None
            both_gave_up.wait()
            caught.value.future.result(20)
        assert all(group.name in text for text in texts), texts
        return texts

    assert [len(texts) for texts in trio.run(task)] == [3, 3, 2]


# --- how they end -----------------------------------------------------------------


def test_close_is_one_replicas_own(trio: Crew) -> None:
    closed = threading.Event()

    def task(comm: zcoll.Communicator) -> int:
        group = comm.dup()
        future = group.allreduce_async(1)
        if comm.replica_rank == 1:
            assert future.result(20) == 3
            group.close()
            group.close()  # a second time it does nothing
            closed.set()
            with pytest.raises(zcoll.ClosedError, match="is closed"):
                group.barrier()
        else:
            wait_for(closed)
            assert future.result(20) == 3  # what was called before counts
            with pytest.raises(zcoll.ReplicaExitedError, match="replica 1") as caught:
                group.barrier()
            assert caught.value.rank == 1
        return comm.allreduce(1)

    assert trio.run(task) == [3] * 3


def test_teardown_ends_a_group_and_those_made_of_it(trio: Crew) -> None:
    def task(comm: zcoll.Communicator) -> list[int]:
        outer = comm.dup()
        inner = outer.dup()
        outer.teardown(timeout=20)
        for group in outer, inner:
            with pytest.raises(zcoll.ClosedError):
                group.allgather(1)
        inner.close()
        outer.teardown()  # a second time it does nothing
        return comm.allgather(comm.replica_rank)

    assert trio.run(task) == [[0, 1, 2]] * 3


def test_a_group_is_a_context_manager(trio: Crew) -> None:
    def task(comm: zcoll.Communicator) -> int:
        with comm.dup() as group:
            total = group.allreduce(1)
        with pytest.raises(zcoll.ClosedError):
            group.barrier()
        return total

    assert trio.run(task) == [3] * 3


def test_the_teardown_of_the_world_ends_all_groups() -> None:
    def task(comm: zcoll.Communicator) -> None:
        group = comm.dup()
        comm.teardown(timeout=20)
        with pytest.raises(zcoll.ClosedError):
            group.barrier()
        group.teardown()
        group.close()

    run_group(3, task)


@pytest.mark.parametrize("size", [1, 2])
def test_thousands_of_splits_leave_no_growth(size: int) -> None:
    """Of those that are closed, and of those that are merely dropped."""
    rounds = 150

    def split(comm: zcoll.Communicator) -> None:
        for turn in range(rounds):
            group = made(comm.split(turn % 3))
            assert group.allreduce(1) == size
            if turn % 2:
                group.close()
        comm.barrier()

    with Crew(size) as crew:
        crew.run(split)  # fills caches, the window, and what else has a bound
        tracemalloc.start()
        try:
            crew.run(split)
            before = tracemalloc.get_traced_memory()[0]
            crew.run(split)
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert grown < rounds * 200  # bytes; what is kept of a group would be more
        hub = crew.run(lambda comm: comm._engine)[0]
        assert len(hub._coordinator.decisions.groups) <= 2  # type: ignore[union-attr]


def test_the_function_is_that_of_the_groups_lowest_rank(
    crew_of: Callable[[int], Crew],
) -> None:
    """Also when rank 0's process is another one of the group, and knows a function."""

    def task(comm: zcoll.Communicator) -> list[int]:
        group = comm.split(0, key=-comm.replica_rank)
        assert group is not None
        for _ in range(5):
            comm.allreduce(1, operator.add)  # it is known to be quick
        mine = operator.sub if group.replica_rank == 0 else operator.add
        found = [group.allreduce(comm.replica_rank, mine) for _ in range(50)]
        group.close()
        return found

    assert crew_of(2).run(task) == [[1] * 50] * 2

"""Who waits does the group's work; whoever cannot, leaves it to others."""

from __future__ import annotations

import concurrent.futures
import threading
from typing import TYPE_CHECKING

import numpy as np
from group import LIMIT, run_group, wait_for

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable

    from group import Crew


def test_a_slow_reduce_function_keeps_no_other_group_waiting(
    crew_of: Callable[[int], Crew],
) -> None:
    """Rank 0's thread folds by itself, and leaves the rest to others meanwhile."""
    other_is_done = threading.Event()

    def fold(one: int, other: int) -> int:
        wait_for(other_is_done)
        return one + other

    def task(comm: zcoll.Communicator) -> tuple[int, int]:
        copy = comm.dup()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            slow = pool.submit(comm.allreduce, 1, fold, timeout=LIMIT)
            quick = [copy.allreduce(step, timeout=LIMIT) for step in range(20)]
            other_is_done.set()
            copy.close()
            return slow.result(LIMIT), quick[-1]

    assert crew_of(3).run(task) == [(3, 57)] * 3


def test_large_results_go_on_when_rank_0_has_its_own() -> None:
    """Rank 0 has its result first, and computes while the others' are on the way."""
    others_have_theirs = threading.Barrier(2, timeout=LIMIT)

    def task(comm: zcoll.Communicator) -> float:
        total = comm.broadcast(np.full(4_000_000, 2.0), timeout=LIMIT)
        others_have_theirs.wait()  # rank 0's thread does not drive any more
        return float(total.sum())

    assert run_group(2, task) == [8e6, 8e6]


def test_a_wait_that_ends_leaves_the_work_to_the_next(
    crew_of: Callable[[int], Crew],
) -> None:
    """The first thread drives; when it has its result, the others still wait."""
    gate = threading.Event()

    def task(comm: zcoll.Communicator) -> list[int]:
        first = comm.allreduce_async(1)
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            waiting = [pool.submit(first.result, LIMIT)]
            if comm.replica_rank == 1:
                wait_for(gate)
            later = [comm.allreduce_async(step) for step in (2, 3)]
            waiting += [pool.submit(future.result, LIMIT) for future in later]
            if comm.replica_rank == 0:
                waiting[0].result(LIMIT)
                gate.set()
            return [each.result(LIMIT) for each in waiting]

    assert crew_of(2).run(task) == [[2, 4, 6]] * 2


def test_a_call_ends_for_those_who_only_look(crew_of: Callable[[int], Crew]) -> None:
    """Nobody drives: the thread looks by ``done()``, and ``wait`` of the library."""

    def task(comm: zcoll.Communicator) -> bool:
        comm.barrier()  # this thread has just driven
        future = comm.allreduce_async([comm.replica_rank])
        done, _ = concurrent.futures.wait([future], LIMIT)
        return future in done and future.done() and not future.running()

    assert crew_of(3).run(task) == [True] * 3


def test_a_quick_reduce_function_that_once_is_slow(
    crew_of: Callable[[int], Crew],
) -> None:
    """It is run without the wheel, and whoever takes that takes the call over too."""
    slow, others_turn, other_is_done = (threading.Event() for _ in range(3))

    def fold(one: int, other: int) -> int:
        if slow.is_set():
            others_turn.set()
            wait_for(other_is_done)
        return one + other

    def other_calls(copy: zcoll.Communicator) -> int:
        if copy.replica_rank == 0:
            wait_for(others_turn)
        result = copy.allreduce(1, timeout=LIMIT)
        if copy.replica_rank == 0:
            other_is_done.set()
        return result

    def task(comm: zcoll.Communicator) -> list[int]:
        copy = comm.dup()
        for _ in range(3):
            comm.allreduce(1, fold, timeout=LIMIT)
        comm.barrier(timeout=LIMIT)
        slow.set()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            calls = pool.submit(other_calls, copy)
            folded = comm.allreduce(comm.replica_rank, fold, timeout=LIMIT)
            other = calls.result(LIMIT)
        return [folded, other, comm.allreduce(1, timeout=LIMIT)]

    assert crew_of(3).run(task) == [[3, 3, 3]] * 3


def test_a_reduce_function_that_at_last_raises(crew_of: Callable[[int], Crew]) -> None:
    def fold(one: int, other: int) -> int:
        if one > 100:
            raise ValueError("too large")
        return one + other

    def task(comm: zcoll.Communicator) -> str:
        for _ in range(5):
            assert comm.allreduce(1, fold, timeout=LIMIT) == 3
        try:
            comm.allreduce(200, fold, timeout=LIMIT)
        except zcoll.ReduceError as error:
            assert comm.allreduce(1, fold, timeout=LIMIT) == 3
            return str(error)
        return "no error"

    for text in crew_of(3).run(task):
        assert "ValueError: too large" in text

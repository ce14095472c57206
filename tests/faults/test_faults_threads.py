"""Many threads on one communicator, and many groups one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from faults import acts, acts_threads
from faults.phases import group_of
from job import run_job

if TYPE_CHECKING:
    from pathlib import Path

    from faults.phases import Way
    from faults.puppets import Nursery

MEBI = 1 << 20


def test_a_thousand_calls_of_each_of_eight_threads(nursery: Nursery, way: Way) -> None:
    with group_of(nursery, way) as group:
        assert group.do(acts_threads.call_from_threads, 8, 1000) == [[], [], []]
        group.do(acts.teardown)


def test_eight_threads_may_wait_in_the_same_call(nursery: Nursery, way: Way) -> None:
    with group_of(nursery, way) as group:
        assert group.do(acts_threads.call_alike_from_threads, 8, 100) == [[], [], []]
        group.do(acts.teardown)


@pytest.mark.parametrize("options", [[], ["--tcp"]], ids=["ipc", "tcp"])
def test_two_hundred_groups_leave_nothing_behind(
    results: Path, options: list[str]
) -> None:
    finished = run_job("again.py", 2, results, "200", options=options).check()
    assert sorted(finished.reports) == [0, 1]
    for held in finished.reports.values():
        fds, threads, memory = zip(*held, strict=True)
        assert len(held) == 200
        assert max(fds) == fds[0]
        assert max(threads) == threads[0]
        assert memory[-1] - max(memory[:20]) < 8 * MEBI


@pytest.mark.parametrize("options", [[], ["--tcp"]], ids=["ipc", "tcp"])
def test_rank_0_holds_less_than_all_operands_and_the_result(
    results: Path, options: list[str]
) -> None:
    """On top of the array that rank 0's program has itself."""
    size = 64
    finished = run_job("memory.py", 4, results, f"{size}", options=options).check()
    more, right = finished.reports[0]
    assert right
    assert more < (4 + 1) * size * MEBI

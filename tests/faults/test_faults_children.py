"""Children of replicas: they hide no loss, and may have groups of their own."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from faults import acts
from faults.phases import Strike, group_of, seconds_until_all_know
from job import run_job
from launch import is_running, wait_gone
from ports import ipc_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from faults.phases import Way
    from faults.puppets import Nursery

SLACK = 8.0  # seconds that a busy machine may take


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("child", [acts.fork_a_child, acts.start_a_program])
def test_a_child_that_outlives_a_killed_replica_does_not_hide_the_loss(
    nursery: Nursery, way: Way, victim: int, child: Callable[[], int]
) -> None:
    with group_of(nursery, way) as group:
        strike = Strike(group, victim, signal.SIGKILL, 0)
        pid = strike.target.do(child)
        try:
            seconds = seconds_until_all_know(strike, "idle")
            assert is_running(pid)
        finally:
            os.kill(pid, signal.SIGKILL)
            wait_gone([pid])
    assert seconds < way.bound_of_death + SLACK


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_have_groups_of_their_own(results: Path, method: str) -> None:
    """Also those of a replica; and what they sent before their end is delivered."""
    with ipc_port() as first, ipc_port() as second:
        ports = [f"{first}", f"{second}"]
        finished = run_job("children.py", 2, results, method, *ports).check()
    for rank in (0, 1):
        assert finished.reports[rank] == {
            "of the children": [["a0", "a1"], "ReplicaExitedError", 1],
            "exit": [0, 0],
            "after": 2,
        }
    assert "Traceback" not in finished.errors

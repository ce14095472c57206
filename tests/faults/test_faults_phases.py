"""A replica is killed or stopped, whatever it is doing: everybody else is told."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from faults.phases import (
    PHASES,
    Strike,
    check_latecomer,
    group_of,
    seconds_until_all_know,
)

if TYPE_CHECKING:
    from faults.phases import Way
    from faults.puppets import Nursery

NBYTES = 30_000_000
SLACK = 8.0  # seconds that a busy machine may take; tools/faults holds the bounds

phases = pytest.mark.parametrize("phase", PHASES)
victims = pytest.mark.parametrize("victim", [0, 1])


@victims
@phases
def test_a_killed_replica_is_lost_to_all(
    nursery: Nursery, way: Way, phase: str, victim: int
) -> None:
    with group_of(nursery, way) as group:
        strike = Strike(group, victim, signal.SIGKILL, NBYTES)
        seconds = seconds_until_all_know(strike, phase)
    assert seconds < way.bound_of_death + SLACK


@victims
def test_a_stopped_replica_is_lost_to_all_and_learns_of_it(
    nursery: Nursery, way: Way, victim: int
) -> None:
    """One group for each phase, all at the same time: they only wait."""

    def stop(phase: str) -> float:
        with group_of(nursery, way) as group:
            strike = Strike(group, victim, signal.SIGSTOP, NBYTES)
            seconds = seconds_until_all_know(strike, phase)
            check_latecomer(strike, phase)
        return seconds

    with ThreadPoolExecutor(len(PHASES)) as threads:
        for seconds in threads.map(stop, PHASES):
            assert seconds < way.bound_of_silence + SLACK

"""Replicas that are killed while they share memory, and many of them."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest
from faults import acts
from faults.looking import look
from faults.phases import Strike, Way, check_loss, group_of, seconds_until_all_know

from zcoll.launchers.settings import Liveness

if TYPE_CHECKING:
    from faults.phases import Group
    from faults.puppets import Nursery

WAY = Way("ipc", Liveness())
NBYTES = 16_000_000
MANY = 64
LIMIT = 30.0  # seconds for the agreements on the lanes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs memfd")


def join_in_shared_memory(group: Group) -> None:
    """Let all come in, and wait until rank 0 shares memory with each of the others."""
    for puppet in group.puppets:
        puppet.do(acts.share_memory)
    group.join()
    expected = dict.fromkeys(range(1, len(group.puppets)), "shared memory")
    deadline = time.monotonic() + LIMIT
    while (ways := look(group).status.ways) != expected:
        assert time.monotonic() < deadline, ways
        time.sleep(0.01)


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("phase", ["idle", "waiting", "sending", "receiving"])
def test_a_replica_is_killed(nursery: Nursery, victim: int, phase: str) -> None:
    with group_of(nursery, WAY, joined=False) as group:
        join_in_shared_memory(group)
        strike = Strike(group, victim, signal.SIGKILL, NBYTES)
        seconds_until_all_know(strike, phase)


def test_sixty_four_replicas_of_one_host(nursery: Nursery) -> None:
    with group_of(nursery, WAY, MANY, joined=False) as group:
        join_in_shared_memory(group)
        assert group.do(acts.allreduce, 1) == [MANY] * MANY
        group.do(acts.reduce_array, NBYTES // MANY)
        victim = group.puppets[MANY // 2]
        for puppet in group.puppets:
            if puppet is not victim:
                puppet.tell(acts.until_lost, acts.barrier)
        os.kill(victim.pid, signal.SIGKILL)
        for puppet in group.puppets:
            if puppet is not victim:
                check_loss(puppet.expect("failed").value, MANY // 2, victim)

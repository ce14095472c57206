"""A replica is killed or stopped before the group is complete: its place is free."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from faults import acts, acts_reports
from faults.looking import wait_until_present
from faults.phases import group_of

import zcoll

if TYPE_CHECKING:
    from faults.phases import Group, Way
    from faults.puppets import Nursery


def check_that_it_works(group: Group) -> None:
    group.finish()
    assert group.do(acts.allreduce, 2) == [6, 6, 6]
    group.do(acts.teardown)


def test_another_takes_the_place_of_a_killed_replica(
    nursery: Nursery, way: Way
) -> None:
    with group_of(nursery, way, joined=False) as group, nursery.puppets(1) as (new,):
        group.tell_to_join(0)
        group.tell_to_join(1)
        wait_until_present(group, [0, 1])
        group.puppets[1].signal(signal.SIGKILL)
        group.tell_to_join(1, new)
        group.tell_to_join(2)
        group.puppets[1] = new
        check_that_it_works(group)


def test_another_takes_the_place_of_a_stopped_replica(
    nursery: Nursery, way: Way
) -> None:
    with group_of(nursery, way, joined=False) as group, nursery.puppets(1) as (new,):
        group.tell_to_join(0)
        old = group.tell_to_join(1)
        wait_until_present(group, [0, 1])
        old.signal(signal.SIGSTOP)
        wait_until_present(group, [0])
        group.puppets[1] = group.tell_to_join(1, new)
        wait_until_present(group, [0, 1])
        old.signal(signal.SIGCONT)
        error = old.expect("failed").value
        assert isinstance(error, zcoll.RejectedError), repr(error)
        assert "rank 1 is taken by replica 1" in str(error)
        assert f"pid {new.pid})" in str(error)
        group.tell_to_join(2)
        check_that_it_works(group)


def test_rank_0_may_be_started_again_while_others_wait(
    nursery: Nursery, way: Way
) -> None:
    with group_of(nursery, way, joined=False) as group, nursery.puppets(1) as (new,):
        for rank in (0, 1):
            group.tell_to_join(rank)
        wait_until_present(group, [0, 1])
        group.puppets[0].signal(signal.SIGKILL)
        group.puppets[0] = group.tell_to_join(0, new)
        group.tell_to_join(2)
        check_that_it_works(group)


def test_rank_0_may_be_stopped_for_long_while_others_wait(
    nursery: Nursery, way: Way
) -> None:
    with group_of(nursery, way, joined=False) as group:
        group.tell_to_join(0)
        group.tell_to_join(1)
        wait_until_present(group, [0, 1])
        group.puppets[0].signal(signal.SIGSTOP)
        group.tell_to_join(2)
        _, second, third = group.puppets
        second.expect_silence(way.bound_of_silence)
        third.expect_silence(0)
        group.puppets[0].signal(signal.SIGCONT)
        check_that_it_works(group)


def test_those_who_wait_are_told_who_is_missing(nursery: Nursery, way: Way) -> None:
    with group_of(nursery, way, joined=False, timeout=2.5) as group:
        group.puppets[0].do(acts_reports.listen)
        group.puppets[0].do(acts_reports.tell_of_waits_after, 0.3)
        group.tell_to_join(0)
        group.tell_to_join(1)
        wait_until_present(group, [0, 1])
        group.puppets[1].signal(signal.SIGKILL)
        name, level, text = group.puppets[0].expect("log").value
        while "waits for" not in text:
            name, level, text = group.puppets[0].expect("log").value
        assert (name, level) == ("zcoll.joining", "WARNING")
        error = group.puppets[0].expect("failed").value
        assert isinstance(error, zcoll.RendezvousTimeoutError)
        assert error.missing == [1, 2]
        assert "replicas 1-2 missing" in str(error)

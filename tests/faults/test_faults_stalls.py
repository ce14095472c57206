"""A call takes long: who is missing, and where they are, is logged and raised."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from faults import acts, acts_reports
from faults.looking import look
from faults.phases import Way, group_of

from zcoll import Whereabouts
from zcoll.launchers.settings import Liveness

if TYPE_CHECKING:
    from faults.phases import Group
    from faults.puppets import Nursery, Puppet

# So that nobody is lost while the reports grow.
PATIENT = Liveness(heartbeat_interval=2, heartbeat_timeout=30, stall_warning=0.5)


@pytest.fixture(params=["tcp"])
def way(request: pytest.FixtureRequest) -> Way:
    return Way(request.param, PATIENT)


both_ways = pytest.mark.parametrize("way", ["ipc", "tcp"], indirect=True)


def warning(puppet: Puppet, words: str) -> str:
    """Wait for a warning with these words."""
    while True:
        name, level, text = puppet.expect("log").value
        if (name, level) == ("zcoll.stalls", "WARNING") and words in text:
            return str(text)


def others_wait(group: Group, missing: int) -> list[Puppet]:
    others = [p for rank, p in enumerate(group.puppets) if rank != missing]
    for puppet in others:
        puppet.do(acts_reports.listen)
        puppet.tell(acts.barrier)
    return others


@both_ways
@pytest.mark.parametrize("missing", [0, 1])
def test_a_replica_in_user_code_is_named_with_its_line(
    nursery: Nursery, way: Way, missing: int
) -> None:
    with group_of(nursery, way) as group:
        group.do(acts.allreduce, 1)
        lazy = group.puppets[missing]
        lazy.tell(acts_reports.load_batch)
        lazy.expect("loading")
        others = others_wait(group, missing)
        for puppet in others:
            text = warning(puppet, "is in user code")
            assert "barrier, call 2 (" in text
            assert "acts.py:" in text.partition(")")[0]  # this replica's own line
            assert f"replica {missing} (" in text
            assert f"pid {lazy.pid})" in text
            assert "load_batch for" in text
            assert "it last called allreduce(), call 1" in text
            name, level, stack = puppet.expect("log").value
            assert (name, level) == ("zcoll.stalls", "DEBUG")
            assert f"the stack of replica {missing}:" in stack
            assert "in load_batch" in stack
            assert "in dance" in stack
            warning(puppet, "is in user code")  # and again
        call = look(group).status.call
        assert call is not None
        assert call.missing == [missing]
        lazy.signal(signal.SIGUSR1)
        lazy.expect("ended")
        lazy.tell(acts.barrier)
        group.finish()


@pytest.mark.parametrize("missing", [0, 1])
def test_a_timeout_has_the_report_as_fields(
    nursery: Nursery, way: Way, missing: int
) -> None:
    with group_of(nursery, way) as group:
        group.do(acts.allreduce, 1)
        lazy = group.puppets[missing]
        lazy.tell(acts_reports.load_batch)
        lazy.expect("loading")
        others = [puppet for puppet in group.puppets if puppet is not lazy]
        for puppet in others:
            puppet.tell(acts_reports.limited_barrier, 0.2)
        for puppet in others:
            ranks, report, text = puppet.expect("timed out").value
            assert ranks == [missing]
            (absence,) = report
            assert (absence.rank, absence.pid) == (missing, lazy.pid)
            assert absence.state is Whereabouts.IN_USER_CODE
            assert "load_batch" in absence.where
            assert "acts_reports.py:" in absence.where
            assert "in load_batch" in absence.stack
            assert "allreduce(), call 1" in absence.last_call
            assert str(absence) in text
        lazy.signal(signal.SIGUSR1)
        lazy.expect("ended")
        lazy.tell(acts.barrier)
        assert group.finish().count([None]) == 2


@pytest.mark.parametrize("stopped", [False, True], ids=["stuck", "stopped"])
@pytest.mark.parametrize("missing", [0, 1])
def test_a_replica_that_gives_no_sign_of_life_is_told_from_a_busy_one(
    nursery: Nursery, way: Way, missing: int, stopped: bool
) -> None:
    with group_of(nursery, way) as group:
        lazy = group.puppets[missing]
        if stopped:
            lazy.signal(signal.SIGSTOP)
        else:
            lazy.tell(acts.hold_interpreter_until_told)
            lazy.expect("holding")
        for puppet in others_wait(group, missing):
            if missing:
                text = warning(puppet, "has given no sign of life for")
                assert f"replica {missing} (" in text
            else:  # who would say so, is the one that is asked
                warning(puppet, "rank 0 does not answer; it was heard of")
        if stopped:
            lazy.signal(signal.SIGCONT)
        else:
            lazy.signal(signal.SIGUSR1)
            lazy.expect("ended")
        lazy.tell(acts.barrier)
        group.finish()


def test_a_timeout_says_that_rank_0_gives_no_sign_of_life(
    nursery: Nursery, way: Way
) -> None:
    with group_of(nursery, way) as group:
        zero, *others = group.puppets
        zero.signal(signal.SIGSTOP)
        for puppet in others:
            puppet.tell(acts_reports.limited_barrier, 0.2)
        for puppet in others:
            ranks, (absence,), text = puppet.expect("timed out").value
            assert ranks == [0]
            assert absence.state is Whereabouts.SILENT
            assert "rank 0 does not answer" in text
        zero.signal(signal.SIGCONT)
        zero.tell(acts.barrier)
        group.finish()


def test_a_replica_that_waits_in_another_call_is_named_with_it(
    nursery: Nursery, way: Way
) -> None:
    with group_of(nursery, way) as group:
        zero, one, two = group.puppets
        one.tell(acts.allreduce, 1)
        for puppet in (zero, two):
            puppet.do(acts_reports.listen)
            puppet.tell(acts_reports.two_calls, 1.5)
        text = warning(two, "waits in")
        assert "replica 1 (" in text
        assert "waits in allreduce, call 1 (" in text
        one.expect("ended")
        one.tell(acts.allreduce, 1)
        assert group.finish() == [6, 3, 6]


def test_rank_0_in_its_reduce_function_is_named_with_it(
    nursery: Nursery, way: Way
) -> None:
    with group_of(nursery, way) as group:
        group.puppets[2].do(acts_reports.listen)
        for puppet in group.puppets:
            puppet.tell(acts.reduce_slowly, 1.0, False)
        text = warning(group.puppets[2], "everybody has called")
        assert "rank 0 is in reduce function reduce_slowly.<locals>.function" in text
        assert group.finish() == [[0, 1, 2]] * 3

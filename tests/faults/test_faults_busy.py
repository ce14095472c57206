"""What only takes long is no fault: busy replicas, reduce functions, short stops."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from faults import acts
from faults.looking import look
from faults.phases import Group, Strike, check_loss, group_of

import zcoll

if TYPE_CHECKING:
    from faults.phases import Way
    from faults.puppets import Nursery

SLACK = 8.0  # seconds that a busy machine may take


@pytest.mark.parametrize("victim", [0, 1])
def test_a_replica_that_holds_its_interpreter_is_not_lost(
    nursery: Nursery, way: Way, victim: int
) -> None:
    with group_of(nursery, way) as group:
        for rank, puppet in enumerate(group.puppets):
            if rank == victim:
                puppet.tell(acts.hold_interpreter, way.bound_of_silence + 0.5)
                puppet.expect("holding")
            else:
                puppet.tell(acts.allreduce, 1)
        held = group.puppets[victim].expect("ended").value
        group.puppets[victim].tell(acts.allreduce, 1)
        assert group.finish() == [3, 3, 3]
    assert held > way.bound_of_silence, "the interpreter was not held for long enough"


@pytest.mark.parametrize("hold", [False, True], ids=["busy", "holds the interpreter"])
def test_rank_0_is_not_lost_in_a_long_reduce_function(
    nursery: Nursery, way: Way, hold: bool
) -> None:
    seconds = (way.bound_of_silence + 0.5) / 2  # it is called twice
    with group_of(nursery, way) as group, nursery.puppets(1) as (late,):
        for puppet in group.puppets:
            puppet.tell(acts.reduce_slowly, seconds, hold)
        group.puppets[0].expect("reducing")
        if not hold:
            call = look(group).status.call
            assert call is not None
            assert "in reduce function" in call.text
            group.tell_to_join(1, late)
            error = late.expect("failed").value
            assert isinstance(error, zcoll.RejectedError)
            assert "is taken by" in str(error)
        assert group.finish() == [[0, 1, 2]] * 3
        group.do(acts.barrier)


def test_a_loss_is_told_during_a_long_reduce_function(
    nursery: Nursery, way: Way
) -> None:
    with group_of(nursery, way) as group:
        strike = Strike(group, 2, signal.SIGKILL, 0)
        for puppet in group.puppets:
            puppet.tell(acts.reduce_slowly, 60.0, False)
        group.puppets[0].expect("reducing")
        at = strike.now()
        told = [puppet.expect("failed") for puppet in strike.survivors]
    for news in told:
        check_loss(news.value, 2, strike.target)
        assert news.at - at < way.bound_of_death + SLACK


def test_rank_0_may_be_stopped_for_less_than_the_limits(
    nursery: Nursery, way: Way
) -> None:
    patient = replace(way, liveness=way.liveness._replace(heartbeat_timeout=20.0))
    with group_of(nursery, patient) as group:
        zero, *others = group.puppets
        for puppet in others:
            puppet.tell(acts.announced, acts.allreduce, 1)
            puppet.expect("waiting")
        zero.signal(signal.SIGSTOP)
        for puppet in others:
            puppet.expect_silence(1.0)
        zero.signal(signal.SIGCONT)
        zero.tell(acts.allreduce, 1)
        assert group.finish() == [3, 3, 3]


def test_a_new_rank_0_never_meets_the_old_replicas(nursery: Nursery, way: Way) -> None:
    """They would still try to reach the old one when the new one is there."""
    patient = replace(way, liveness=way.liveness._replace(reconnect_window=30.0))
    with (
        group_of(nursery, patient) as old,
        nursery.puppets(3) as puppets,
    ):
        for rank in (1, 2):
            old.puppets[rank].tell(acts.until_lost, acts.announced, acts.allreduce, 50)
            old.puppets[rank].expect("waiting")
        new = Group(patient, old.port, puppets)
        old.puppets[0].signal(signal.SIGKILL)
        new.tell_to_join(0)
        for rank in (1, 2):
            error = old.puppets[rank].expect("failed").value
            assert isinstance(error, zcoll.ReplicaLostError), repr(error)
            assert (error.rank, error.pid) == (0, old.puppets[0].pid)
            if way.name == "tcp":  # over ipc the loss was clear before
                assert "rank 0 was started again" in str(error)
        for rank in (1, 2):
            new.tell_to_join(rank)
        new.finish()
        assert new.do(acts.allreduce, 1) == [3, 3, 3]
        new.do(acts.teardown)

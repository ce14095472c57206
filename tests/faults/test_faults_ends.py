"""Programs end: by an exception, by Ctrl-C, by sys.exit, by a signal, by abort."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from faults import acts
from faults.looking import wait_until_present
from faults.phases import Strike, check_loss, group_of
from launch import wait_gone

import zcoll
from zcoll.transport.ipc import path_of

if TYPE_CHECKING:
    from faults.phases import Group, Way
    from faults.puppets import Nursery, Puppet

SLACK = 8.0  # seconds that a busy machine may take
victims = pytest.mark.parametrize("victim", [0, 1])


def ends(puppet: Puppet, *, clean: bool = False) -> str:
    """Wait until a program has ended, and give what it has written."""
    puppet.expect("gone")
    wait_gone([puppet.pid])
    written = puppet.errors
    assert "Exception ignored" not in written
    assert "Fatal Python error" not in written
    assert written.count("Traceback") == (0 if clean else 1), written
    return written


def check_that_nothing_is_left(group: Group) -> None:
    """Check that there is no file of the group any more."""
    path = path_of(group.port)
    left = [one.name for one in path.parent.glob("*") if one.stem == path.name]
    assert not left


def exited(strike: Strike, at: float, reason: str) -> None:
    """Check that the others learn at once that, and why, the victim has left."""
    for puppet in strike.survivors:
        news = puppet.expect("failed")
        error = news.value
        assert isinstance(error, zcoll.ReplicaExitedError), repr(error)
        assert (error.rank, error.reason) == (strike.victim, reason), str(error)
        assert (error.pid, reason in str(error)) == (strike.target.pid, True)
        assert news.at - at < 1 + SLACK


@victims
def test_an_uncaught_exception_ends_the_job(
    nursery: Nursery, way: Way, victim: int
) -> None:
    with group_of(nursery, way) as group:
        strike = Strike(group, victim, 0, 0)
        strike.others_wait()
        strike.target.tell(acts.fail, "the disk is full", caught=False)
        gone = strike.target.expect("gone")
        exited(strike, gone.at, "RuntimeError: the disk is full")
        for puppet in strike.survivors:  # theirs is uncaught too
            puppet.tell(acts.barrier, caught=False)
        for puppet in strike.survivors:
            assert "the disk is full" in ends(puppet)
        check_that_nothing_is_left(group)


@victims
def test_an_exception_in_a_with_block_ends_the_job(
    nursery: Nursery, way: Way, victim: int
) -> None:
    with group_of(nursery, way, joined=False) as group:
        strike = Strike(group, victim, 0, 0)
        join = (group.port, victim, 3, way.secret, group.tuning)
        strike.target.tell(acts.fail_in_with, *join, "no more data")
        for rank in {0, 1, 2} - {victim}:
            group.tell_to_join(rank)
        for puppet in strike.survivors:
            puppet.expect("ended")
            puppet.tell(acts.until_lost, acts.barrier)
        raised = strike.target.expect("failed")
        assert isinstance(raised.value, RuntimeError)
        exited(strike, raised.at, "RuntimeError: no more data")


@victims
def test_sys_exit_leaves_nothing_behind(
    nursery: Nursery, way: Way, victim: int
) -> None:
    with group_of(nursery, way) as group:
        strike = Strike(group, victim, 0, 0)
        strike.others_wait()
        strike.target.tell(acts.leave, caught=False)
        gone = strike.target.expect("gone")
        exited(strike, gone.at, "")
        for puppet in strike.survivors:
            puppet.tell(acts.leave, caught=False)
        for puppet in group.puppets[::-1]:
            if puppet is not strike.target:
                ends(puppet, clean=True)
        check_that_nothing_is_left(group)


@victims
@pytest.mark.parametrize("act", [acts.barrier, acts.teardown])
def test_an_uncaught_ctrl_c_in_a_wait_ends_the_job(
    nursery: Nursery, way: Way, victim: int, act: object
) -> None:
    with group_of(nursery, way) as group:
        strike = Strike(group, victim, signal.SIGINT, 0)
        strike.target.tell(acts.announced, act, caught=False)
        strike.target.expect("waiting")
        at = strike.now()
        written = ends(strike.target)
        assert written.rstrip().endswith("KeyboardInterrupt")
        for puppet in strike.survivors:
            puppet.tell(acts.until_lost, act)
        if act is acts.barrier:
            exited(strike, at, "KeyboardInterrupt")
        else:  # its teardown was on its way: it has left as agreed
            for puppet in strike.survivors:
                puppet.expect_end()


@victims
def test_an_uncaught_ctrl_c_while_joining_leaves_nothing_behind(
    nursery: Nursery, way: Way, victim: int
) -> None:
    with group_of(nursery, way, joined=False) as group:
        for rank in {0, victim}:
            join = (group.port, rank, 3, way.secret, group.tuning)
            group.puppets[rank].tell(acts.join, *join, caught=False)
        wait_until_present(group, {0, victim})
        group.puppets[victim].signal(signal.SIGINT)
        assert ends(group.puppets[victim]).rstrip().endswith("KeyboardInterrupt")
        if victim == 0:
            check_that_nothing_is_left(group)
        else:
            wait_until_present(group, {0})


@victims
def test_a_default_sigterm_counts_as_a_kill(
    nursery: Nursery, way: Way, victim: int
) -> None:
    with group_of(nursery, way) as group:
        strike = Strike(group, victim, signal.SIGTERM, 0)
        strike.others_wait()
        at = strike.now()
        for puppet in strike.survivors:
            news = puppet.expect("failed")
            check_loss(news.value, victim, strike.target)
            assert news.at - at < way.bound_of_death + SLACK


@victims
def test_abort_ends_the_group_everywhere(
    nursery: Nursery, way: Way, victim: int
) -> None:
    with group_of(nursery, way) as group:
        strike = Strike(group, victim, 0, 0)
        strike.others_wait()
        strike.target.do(acts.abort, "the loss is not a number")
        strike.target.tell(acts.barrier)
        texts = set()
        for puppet in group.puppets:
            error = puppet.expect("failed").value
            assert isinstance(error, zcoll.AbortedError), repr(error)
            assert (error.rank, error.reason) == (victim, "the loss is not a number")
            assert error.pid == strike.target.pid
            texts.add(str(error))
            puppet.tell(acts.barrier)
            assert str(puppet.expect("failed").value) == str(error)
        assert len(texts) == 1
        group.do(acts.teardown)
        check_that_nothing_is_left(group)

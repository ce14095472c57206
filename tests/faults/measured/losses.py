"""Rows: processes that are killed or stopped."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from typing import TYPE_CHECKING

from faults import acts
from faults.measured.row import Load, Row
from faults.phases import (
    PHASES,
    Group,
    Strike,
    Way,
    check_latecomer,
    group_of,
    seconds_until_all_know,
)

import zcoll

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faults.puppets import Nursery

NBYTES = 200_000_000
LOST = "`ReplicaLostError` on every survivor"
RESTART_BOUND = 2.0
MARGIN = 2.0  # seconds beyond the bound of silence for which nothing is wrong


def strike_in_phase(
    nursery: Nursery, way: Way, *, phase: str, victim: int, number: int
) -> float:
    """Kill or stop a replica in one phase."""
    with group_of(nursery, way) as group:
        strike = Strike(group, victim, number, NBYTES)
        seconds = seconds_until_all_know(strike, phase)
        if number == signal.SIGSTOP:
            check_latecomer(strike, phase)
    return seconds


def kill_a_parent(nursery: Nursery, way: Way, *, victim: int) -> float:
    """Kill a replica that leaves a forked child behind."""
    with group_of(nursery, way) as group:
        strike = Strike(group, victim, signal.SIGKILL, 0)
        child = strike.target.do(acts.fork_a_child)
        try:
            return seconds_until_all_know(strike, "idle")
        finally:
            os.kill(child, signal.SIGKILL)


def restart_rank_0(nursery: Nursery, way: Way) -> float:
    """Kill rank 0, and start another one on its port."""
    with group_of(nursery, way) as old, nursery.puppets(3) as puppets:
        for puppet in old.puppets[1:]:
            puppet.tell(acts.until_lost, acts.announced, acts.allreduce, 50)
            puppet.expect("waiting")
        new = Group(way, old.port, puppets)
        old.puppets[0].signal(signal.SIGKILL)
        at = time.monotonic()
        new.tell_to_join(0)
        told = [puppet.expect("failed") for puppet in old.puppets[1:]]
        for news in told:
            assert isinstance(news.value, zcoll.ReplicaLostError), repr(news.value)
            assert news.value.rank == 0
        for rank in (1, 2):
            new.tell_to_join(rank)
        new.finish()
        assert new.do(acts.allreduce, 1) == [3, 3, 3]
    return max(news.at for news in told) - at


def hold_the_interpreter(nursery: Nursery, way: Way, *, victim: int) -> float:
    """Let a replica be busy beyond every limit; nothing is wrong."""
    with group_of(nursery, way) as group:
        busy = group.puppets[victim]
        busy.tell(acts.hold_interpreter, way.bound_of_silence + MARGIN)
        busy.expect("holding")
        for puppet in group.puppets:
            puppet.tell(acts.allreduce, 1)
        at = busy.expect("ended").at
        ended = [puppet.expect("ended") for puppet in group.puppets]
        assert [news.value for news in ended] == [3, 3, 3]
    return max(news.at for news in ended) - at


def reduce_for_long(nursery: Nursery, way: Way) -> float:
    """Let rank 0's reduce function run beyond every limit; nothing is wrong."""
    seconds = way.bound_of_silence + MARGIN
    with group_of(nursery, way, 2) as group:
        for puppet in group.puppets:
            puppet.tell(acts.reduce_slowly, seconds, False)
        at = group.puppets[0].expect("reducing").at + seconds
        ended = [puppet.expect("ended") for puppet in group.puppets]
        assert [news.value for news in ended] == [[0, 1], [0, 1]]
    return max(news.at for news in ended) - at


def rows() -> Iterator[Row]:
    """All rows of this module."""
    for victim, who in ((1, "replica"), (0, "rank 0")):
        for phase in PHASES:
            yield _row(f"{who} killed", phase, victim, signal.SIGKILL)
    for victim, who in ((1, "replica"), (0, "rank 0")):
        for phase in PHASES:
            yield _row(f"{who} stopped", phase, victim, signal.SIGSTOP)
    for victim, who in ((1, "replica"), (0, "rank 0")):
        yield Row(
            key=f"{who} killed, child lives".replace(" ", "-").replace(",", ""),
            fault=f"{who} killed (SIGKILL), a child that it has forked lives on",
            answer=LOST,
            bound=lambda way: way.bound_of_death,
            measure=partial(kill_a_parent, victim=victim),
        )
    yield Row(
        key="rank-0-restarted",
        fault="rank 0 killed, and started again on the same port",
        answer="the old replicas are refused: `ReplicaLostError`; a new group forms",
        bound=lambda _: RESTART_BOUND,
        measure=restart_rank_0,
    )
    for victim, who in ((1, "replica"), (0, "rank 0")):
        yield Row(
            key=f"{who} busy".replace(" ", "-"),
            fault=f"{who} holds its interpreter for 16 s",
            answer="nothing is wrong: the call ends once it is made there",
            bound=lambda _: None,
            measure=partial(hold_the_interpreter, victim=victim),
            load=Load.TIMED,
        )
    yield Row(
        key="rank-0-reducing",
        fault="rank 0's reduce function runs for 16 s",
        answer="nothing is wrong: the call ends once it has returned",
        bound=lambda _: None,
        measure=reduce_for_long,
    )


def _row(fault: str, phase: str, victim: int, number: int) -> Row:
    array = phase in ("sending", "receiving")
    stopped = number == signal.SIGSTOP
    load = Load.TIMED if not stopped else Load.LARGE if array else Load.WAITS
    return Row(
        key=f"{fault} {phase}".replace(" ", "-"),
        fault=f"{fault} ({'SIGSTOP' if stopped else 'SIGKILL'}) while {phase}"
        + (" 200 MB" if array else ""),
        answer=LOST + ("; refused when it goes on" if stopped else ""),
        bound=lambda way: way.bound(number),
        measure=partial(strike_in_phase, phase=phase, victim=victim, number=number),
        load=load,
    )

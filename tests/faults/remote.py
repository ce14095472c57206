"""Acts of puppets on different hosts, and the groups that they are."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from faults import acts, netns
from faults.nursery import say
from group import SECRET

import zcoll

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faults.puppets import Nursery, Puppet

PORT = 17_000  # of namespaces that nobody else is in
LIMIT = 60.0  # seconds for a group to come together

_reconnects: list[str] = []


class _Reconnects(logging.Handler):
    """Remembers that a replica has come back."""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "connected again" in text:
            _reconnects.append(text)


def join(host: str, rank: int, size: int, tuning: dict[str, Any]) -> None:
    """Move to a host, and come into the default group from there."""
    netns.move_to(host)
    os.environ["ZCOLL_LANE"] = "zmq"  # in truth the two are one host
    logging.getLogger("zcoll").addHandler(_Reconnects())
    logging.getLogger("zcoll").setLevel(logging.INFO)
    zcoll.initialize(
        netns.ADDRESSES[0], PORT, rank, size, secret=SECRET, timeout=LIMIT, **tuning
    )


def reconnects() -> int:
    """How often rank 0 has seen a replica come back."""
    return len(_reconnects)


def call_often(seconds: float) -> int:
    """Make calls for so long, by rank 0's clock, and check them."""
    rank, size = zcoll.replica_rank(), zcoll.num_replicas()
    started, calls = time.monotonic(), 0
    while zcoll.broadcast(time.monotonic() - started < seconds):
        if zcoll.allreduce([(rank, calls)]) != [(r, calls) for r in range(size)]:
            raise AssertionError(f"call {calls} is wrong")
        calls += 1
    return calls


def call_until_told(steps: int) -> None:
    """Make calls, and tell when each has ended, until the group is over."""
    for step in range(steps):
        zcoll.allreduce(step)
        say("called", step)


def reduce_watched(nbytes: int) -> float:
    """Add large arrays; look meanwhile how old the last sign of the others is.

    Returns:
        On rank 0, the longest silence of another replica, in seconds.
    """
    rank, size = zcoll.replica_rank(), zcoll.num_replicas()
    future = zcoll.allreduce_async(np.full(nbytes // 8, float(rank + 1)))
    longest = 0.0
    while not future.done():
        longest = max(longest, _silence() if rank == 0 else 0.0)
        time.sleep(0.02)
    if not (future.result() == size * (size + 1) / 2).all():
        raise AssertionError("a wrong result")
    return longest


def _silence() -> float:
    engine: Any = zcoll.world()._engine
    now = time.monotonic()
    members = engine._coordinator.membership.members[1:]
    return float(max(now - member.heard for member in members))


@contextlib.contextmanager
def group_on(
    two: netns.Hosts, nursery: Nursery, **tuning: Any
) -> Iterator[list[Puppet]]:
    """Make a group of two replicas, each on a host of its own."""
    with nursery.puppets(2) as puppets:
        for rank, puppet in enumerate(puppets):
            puppet.tell(join, two.names[rank], rank, 2, tuning)
        for puppet in puppets:
            puppet.expect("ended")
        yield puppets


def leave(puppets: list[Puppet]) -> None:
    """Tear the group down."""
    for puppet in puppets:
        puppet.tell(acts.teardown)
    for puppet in puppets:
        puppet.expect("ended")

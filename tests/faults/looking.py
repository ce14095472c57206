"""Who is in a group, seen from outside."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from faults.puppets import LIMIT
from probing import prober, target

from zcoll.probe import Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from faults.phases import Group

    from zcoll.probe import Answer


def look(group: Group, limit: float = LIMIT) -> Answer:
    """Ask rank 0 how its group is."""
    with prober(target(group.port, group.way.secret)) as one:
        return one.ask(limit)


def wait_until_present(group: Group, ranks: Iterable[int]) -> None:
    """Wait until just these replicas are there."""
    deadline = time.monotonic() + LIMIT
    expected, seen = sorted(ranks), None
    while time.monotonic() < deadline:
        try:
            replicas = look(group, 1.0).status.replicas
        except Unreachable:  # it is not up yet
            continue
        seen = sorted(replica.rank for replica in replicas)
        if seen == expected:
            return
        time.sleep(0.01)
    raise AssertionError(f"{seen} are there, and not {expected}")

"""What is a row of the table of faults."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from faults.phases import Way
    from faults.puppets import Nursery


class Load(enum.Enum):
    """How much a run of a row asks of the machine; the value: how many at a time."""

    TIMED = 1  # its time is what is measured: nothing else may run
    LARGE = 2  # it waits, with large arrays in memory
    WAITS = 12  # it mostly waits


@dataclass(frozen=True)
class Row:
    """A fault, and how it is provoked.

    Attributes:
        key: Its name on the command line.
        fault: What happens.
        answer: What zcoll does.
        bound: In how many seconds, on each of the ways; None: there is no limit.
        measure: Provokes it once with real processes, checks everything that was
            promised, and gives the seconds that it took.
        load: How many runs of it may go on at the same time.
        ways: Where it can happen.
    """

    key: str
    fault: str
    answer: str
    bound: Callable[[Way], float | None]
    measure: Callable[[Nursery, Way], float]
    load: Load = Load.TIMED
    ways: tuple[str, ...] = ("ipc", "tcp")

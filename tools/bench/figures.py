"""From the clocks of a group's processes to figures."""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.orders import Ran


def round_times(ran: Sequence[Ran]) -> list[float]:
    """How long each round took, in seconds.

    A round has ended when the last replica has its result, and the next one begins
    then: so nobody gains by letting one replica run ahead. The first one begins when
    the last replica is ready.
    """
    begins = [max(each.began for each in ran)]
    begins += [max(ends) for ends in zip(*(each.ends for each in ran), strict=True)]
    return [max(0.0, end - begin) for begin, end in itertools.pairwise(begins)]


def percentile(times: Sequence[float], share: float) -> float:
    """The smallest of the times that so large a share of them does not exceed."""
    ordered = sorted(times)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass(slots=True)
class Samples:
    """What has been measured of a variant in a cell.

    Attributes:
        times: Seconds of each round.
        cpu: Seconds of processor time of all replicas, for all rounds.
        peak: Bytes that rank 0 has needed at most for its value and the calls.
        left_out: Why nothing was measured, if nothing was.
    """

    times: list[float] = field(default_factory=list)
    cpu: float = 0.0
    peak: int = 0
    left_out: str = ""

    def add(self, ran: Sequence[Ran]) -> None:
        """Take in a group's answers, in the order of the ranks."""
        self.times += round_times(ran)
        self.cpu += sum(each.cpu for each in ran)
        self.peak = max(self.peak, ran[0].peak)

    def figures(self, calls_at_once: int) -> Figures | None:
        """The figures of a call, if there are any."""
        if not self.times:
            return None
        return Figures(
            rounds=len(self.times),
            median=statistics.median(self.times) / calls_at_once,
            p99=percentile(self.times, 0.99) / calls_at_once,
            cpu=self.cpu / len(self.times) / calls_at_once,
            peak=self.peak,
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """What a call costs: seconds, and bytes at rank 0.

    Attributes:
        rounds: How many were measured.
        median: Of the time of a call.
        p99: What 99 of 100 calls did not exceed; of few calls, the longest.
        cpu: Processor time of a call, of all replicas together.
        peak: Memory that rank 0 needed beyond what it had, its own value included.
    """

    rounds: int
    median: float
    p99: float
    cpu: float
    peak: int

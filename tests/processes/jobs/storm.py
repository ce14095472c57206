"""Signals without end: they interrupt waits, folds and steps, and nothing is lost."""

from __future__ import annotations

import random
import signal
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from report import report

import zcoll

if TYPE_CHECKING:
    from types import FrameType

T = TypeVar("T")

STEPS = 300
ENOUGH = 40  # interrupts, after which the steps may end


class Alarm(BaseException):
    """What the handler raises, like ``KeyboardInterrupt``."""


class Storm:
    """Interrupts the main thread while it collects a result."""

    def __init__(self, seed: int) -> None:
        self.count = 0
        self._open = False
        self._random = random.Random(seed)
        signal.signal(signal.SIGALRM, self._strike)

    def _strike(self, number: int, frame: FrameType | None) -> None:
        if self._open:
            self._open = False
            self.count += 1
            raise Alarm

    def collect(self, future: zcoll.Future[T]) -> T:
        """Wait for a result, as often as it takes."""
        while True:
            try:
                signal.setitimer(signal.ITIMER_REAL, self._random.uniform(2e-5, 1e-3))
                self._open = True
                result = future.result(30)
                self._open = False
            except Alarm:
                continue
            return result


def fold(one: list[int], other: list[int]) -> list[int]:
    return [*one, *other]


def main() -> None:
    zcoll.initialize()
    rank, size = zcoll.replica_rank(), zcoll.num_replicas()
    storm, step, wrong, enough = Storm(rank), 0, 0, False
    while step < STEPS or not enough:
        step += 1
        result = storm.collect(zcoll.allreduce_async([rank, step], fold))
        wrong += result != [each for r in range(size) for each in (r, step)]
        if step % 50 == 0:
            large = zcoll.allreduce_async(np.full(200_000, step))
            wrong += bool((storm.collect(large) != size * step).any())
            counts = zcoll.allreduce_async([storm.count], fold)
            enough = min(*storm.collect(counts)) >= ENOUGH
    signal.setitimer(signal.ITIMER_REAL, 0)
    report(rank, {"wrong": wrong, "interrupts": storm.count})
    zcoll.teardown()


if __name__ == "__main__":
    main()

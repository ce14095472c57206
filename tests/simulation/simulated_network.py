"""Virtual time, and connections that are late, cut, and repeat themselves."""

from __future__ import annotations

import heapq
import itertools
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections import Counter
    from collections.abc import Callable

Frames = list[bytes]


class Clock:
    """A scheduler: everything in the simulation happens because it says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = itertools.count()
        self._queue: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, time: float, job: Callable[[], None]) -> None:
        """Do this at that time, after what was scheduled for it before."""
        heapq.heappush(self._queue, (time, next(self._order), job))

    def after(self, delay: float, job: Callable[[], None]) -> None:
        """Do this later."""
        self.at(self.now + delay, job)

    def run(self, limit: float) -> None:
        """Do everything, in order of time."""
        while self._queue:
            self.now, _, job = heapq.heappop(self._queue)
            if self.now > limit:
                raise AssertionError(f"not at rest after {limit} virtual seconds")
            job()


class Direction:
    """One direction of a connection: in order and late, until it is cut.

    Args:
        clock: The time.
        random: Delays and duplicates.
        deliver: Takes what arrives.
        after: When what was sent in this direction before has arrived.
        duplicates: The share of messages that arrive again later.
        counts: Counts the duplicates.
    """

    def __init__(
        self,
        clock: Clock,
        random: random.Random,
        deliver: Callable[[Frames], None],
        *,
        after: float,
        duplicates: float,
        counts: Counter[str],
    ) -> None:
        self.last = after
        self._clock = clock
        self._random = random
        self._deliver = deliver
        self._duplicates = duplicates
        self._counts = counts
        self._until = math.inf
        self._delay = random.choice((0.0005, 0.002, 0.01))
        self._slow_until = 0.0

    def send(self, frames: Frames) -> None:
        """Put a message on the way. After a cut it goes nowhere."""
        if self._until < math.inf:
            return
        delay = self._random.random() * self._delay
        if self._clock.now < self._slow_until:
            delay = self._random.random() * (self._slow_until - self._clock.now)
        self.last = max(self.last, self._clock.now + delay)
        self._clock.at(self.last, lambda: self._arrive(frames))
        if self._duplicates and self._random.random() < self._duplicates:
            self._counts["fault: duplicate"] += 1
            late = self.last + self._random.random() * 5 * self._delay
            self._clock.at(late, lambda: self._arrive(frames))

    def slow_down(self, seconds: float) -> None:
        """For a while, whatever is sent takes up to the end of that while."""
        self._slow_until = self._clock.now + seconds

    def cut(self, linger: float = 0.0) -> None:
        """Lose what is on the way, but for what arrives within the linger."""
        late = linger or self._random.choice((0.0, self._delay / 2))
        self._until = min(self._until, self._clock.now + late)

    def _arrive(self, frames: Frames) -> None:
        if self._clock.now <= self._until:
            self._deliver(frames)

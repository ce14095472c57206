"""Waits for what is looked at in memory, beside what is polled."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Protocol

from zcoll.transport.lane.lane import fence

if TYPE_CHECKING:
    from collections.abc import Sized

LOOK = 0.0002  # seconds of looking before a sleep: about as long as a small call takes
CROWDED = 0.02  # seconds without looking, once others have kept the processor so long


class Lanes(Protocol):
    """What is looked at.

    Attributes:
        active: Whether there are any lanes.
        waiting: Whether there is something to do.
        busy: Whether something has yet to go, as soon as there is room.
    """

    @property
    def active(self) -> bool: ...  # noqa: D102 - see above

    @property
    def waiting(self) -> bool: ...  # noqa: D102 - see above

    @property
    def busy(self) -> bool: ...  # noqa: D102 - see above

    def ring(self) -> None:
        """Wake those who sleep and have been sent something."""

    def lie_down(self) -> None:
        """Say that this process sleeps, so that it is woken."""

    def get_up(self) -> None:
        """Say that it is awake."""


class Lookout:
    """What a loop does about its lanes before it sleeps, and after it.

    Args:
        lanes: They.
        num_replicas: How many processes may look at a time. It looks only if there
            is a processor for each: else it would keep one from those that work.

    Attributes:
        lanes: As given.
    """

    def __init__(self, lanes: Lanes, num_replicas: int) -> None:
        self.lanes = lanes
        self._looks = num_replicas <= _processors()
        self._lying = False
        self._crowded_until = 0.0

    def look(self, inbox: Sized) -> bool:
        """Look for some time, and let others use the processor meanwhile.

        Args:
            inbox: What other threads want done: that is looked at too.

        Returns:
            Whether there is something to do.
        """
        if not (self._looks and self.lanes.active):
            return bool(self.lanes.waiting or inbox)
        now = time.monotonic()
        until = now + LOOK
        while not (self.lanes.waiting or inbox):
            if now >= until or now < self._crowded_until:
                return False
            os.sched_yield()
            before, now = now, time.monotonic()
            if now - before > LOOK:
                # Who yields on a crowded machine comes back late; who is woken, soon.
                self._crowded_until = now + CROWDED
        return True

    def lie_down(self) -> bool:
        """Say that this process sleeps; False if it must not, as there is something."""
        self._lying = True
        self.lanes.lie_down()
        fence()
        return not self.lanes.waiting

    def get_up(self) -> None:
        """It is awake."""
        if self._lying:
            self._lying = False
            self.lanes.get_up()


def _processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

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

    Attributes:
        lanes: They.
    """

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self._lying = False
        self._crowded_until = 0.0

    def look(self, inbox: Sized) -> bool:
        """Look for some time, and let others use the processor meanwhile.

        Args:
            inbox: What other threads want done: that is looked at too.

        Returns:
            Whether there is something to do.
        """
        now = time.monotonic()
        until = now + LOOK
        while not (self.lanes.waiting or inbox):
            if now >= until or now < self._crowded_until or not self.lanes.active:
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

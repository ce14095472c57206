"""Waits for what is looked at in memory, beside what is polled."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Protocol

from zcoll.transport.lane.lane import fence

if TYPE_CHECKING:
    from collections.abc import Sized

LOOK = 0.0001  # seconds of looking before a sleep; a wake-up takes about as long


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

    def look(self, inbox: Sized) -> bool:
        """Look for some time, and let others use the processor meanwhile.

        Args:
            inbox: What other threads want done: that is looked at too.

        Returns:
            Whether there is something to do.
        """
        if not self.lanes.active:
            return bool(inbox)
        until = time.monotonic() + LOOK
        while not (self.lanes.waiting or inbox):
            if time.monotonic() >= until:
                return False
            os.sched_yield()
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

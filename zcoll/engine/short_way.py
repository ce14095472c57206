"""How a thread makes a call that is small and goes well: without a future.

Both kinds of engine have their own short way, between two common ends: the wheel is
taken if nothing else is to be done, and what cannot go on is left to the long way.
"""

from __future__ import annotations

import contextlib
import functools
import time
from typing import TYPE_CHECKING, Any

import zmq
from zmq.backend import zmq_poll

from zcoll.engine.loop import Loop
from zcoll.engine.shield import Woken, shield
from zcoll.errors import ZcollError

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from zcoll.engine.request import Request
    from zcoll.engine.shield import NoShield, Shield
    from zcoll.payload import Payload


class Overtaken(Exception):  # noqa: N818 - it is no error
    """Another thread has taken the wheel while the program's code ran.

    Args:
        error: What a signal's handler has raised in that code, or None.

    Attributes:
        error: As given.
    """

    def __init__(self, error: BaseException | None) -> None:
        super().__init__()
        self.error = error


class Interrupted(BaseException):
    """A signal's handler has raised this in the program's own code.

    Args:
        error: What it has raised.

    Attributes:
        error: As given.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class ShortWay(Loop):
    """A loop whose callers drive it for the time of one call."""

    def __init__(self) -> None:
        super().__init__()
        self._active_at = time.monotonic()  # when a call was last made or ended
        self._brief: list[tuple[Any, int]] = [(self._bell.fd, zmq.POLLIN)]
        self._poll_briefly = functools.partial(zmq_poll, self._brief)

    def call(self, request: Request) -> Payload | None:
        """Make a call for which this thread waits.

        Nearly every call goes the short way: it is over when this returns. What takes
        longer, and whatever is unusual, goes the long way, with a future.

        Returns:
            The outcome, which has no parts if there is no value; or None: the request
            has a future now.

        Raises:
            ClosedError: This replica has left, or the process is a fork.
        """
        outcome = None
        try:
            with shield(thorough=False) as guard, contextlib.suppress(Woken):
                outcome = self._try_short_way(request, guard)
        except BaseException as error:  # a signal's handler has raised it
            if outcome is None and not request.begun:
                self._call_all_the_same(request)
            if isinstance(error, Interrupted):
                raise error.error from None
            raise
        if outcome is None and not request.begun:
            self.submit(request, waits=True)
        return outcome

    def _call_all_the_same(self, request: Request) -> None:
        """The caller gets a signal's error, and its value back; the others wait."""
        if request.made.payload is not None:
            request.made.payload.snapshot()
        with contextlib.suppress(ZcollError):  # what has come first is what is raised
            self.submit(request, waits=False)

    def _try_short_way(
        self, request: Request, guard: Shield | NoShield
    ) -> Payload | None:
        if self._inbox or not self._take_wheel(request.made.group):
            return None
        holds = True
        try:
            now = self._active_at = time.monotonic()
            if now >= self._tick_at:
                self._act(frozenset())  # what is due
            return self._go_short_way(request, guard)
        except Overtaken as overtaken:
            holds = False
            if overtaken.error is not None:
                raise Interrupted(overtaken.error) from None
        except Exception as broken:
            self._broken = broken
        finally:
            if holds:
                self._leave_wheel()
        return None

    def _go_short_way(
        self, request: Request, guard: Shield | NoShield
    ) -> Payload | None:
        """Make a call and wait for its outcome, if nothing else is to be done.

        Returns:
            The outcome; or None: the call has a future, or has not been made.

        Raises:
            Woken: A signal has come.
            Interrupted: So it has, in the program's own code.
            Overtaken: The wheel is somebody else's; the call has not been made.
        """
        raise NotImplementedError

    def _sleep_briefly(self, guard: Shield | NoShield) -> AbstractSet[Any] | None:
        """Sleep until something comes to a call that goes the short way.

        Monitors are not looked at before the next tick, but that is soon.

        Returns:
            What is ready; None if the call must go the long way.

        Raises:
            Woken: A signal has come.
        """
        pause = self._tick_at - time.monotonic()
        if pause <= 0:
            return None
        ready = self._sleep(pause, guard, self._poll_briefly)
        if self._bell.fd in ready:  # it rings for the lanes, too
            self._bell.silence()
        return None if self._inbox or not ready else ready

    def submit(self, request: Request, *, waits: bool) -> None:
        """Make a call the long way."""
        raise NotImplementedError

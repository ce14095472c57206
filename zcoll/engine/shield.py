"""Signals that come while the main thread does the loop's work.

Python runs signal handlers on the main thread, between any two of its instructions,
and what they raise (``KeyboardInterrupt``, a test's time-out) ends whatever it is
at. In the middle of a step that would lose a message, or send half of one. So for
the microseconds of a step the handlers are held back, and run right after it; while
the thread sleeps, a signal ends the sleep at once.
"""

from __future__ import annotations

import enum
import sys
import threading
from _signal import (  # those of ``signal`` make enums: 40 us for all
    getsignal,
    valid_signals,
)
from _signal import signal as set_handler
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

T = TypeVar("T")

_SIGNALS: list[int] = sorted(valid_signals())
# Those for which programs have handlers: real-time signals hardly ever, and to look at
# all takes 5 us.
_USUAL = [number for number in _SIGNALS if number < 32]
_USUAL_SET = frozenset(_USUAL)


class Woken(BaseException):
    """A signal has ended the sleep; its handler is still to be run."""


class _Mode(enum.Enum):
    """What becomes of a signal now."""

    HELD = "held"  # its handler runs later
    ASLEEP = "asleep"  # it ends the sleep, and its handler runs later
    FREE = "free"  # its handler runs at once


class Shield:
    """Holds back the program's signal handlers, while its context lasts.

    It puts a handler of its own in the place of each of the program's, and puts
    them back at the end; those whose signals came meanwhile are run then, and may
    raise. It is for the main thread: on any other one nothing is ever interrupted.

    Attributes:
        thorough: Whether it looks at all signals, and not only at the usual ones, for
            handlers that are new since it last did.
        raised: What a handler has raised in what :meth:`run` ran last, or None.
    """

    def __init__(self) -> None:
        self.raised: BaseException | None = None
        self._mode = _Mode.HELD
        self._handler = self._catch  # one object, to know it again
        self._replaced: list[tuple[int, Any]] = []
        self._caught: list[int] = []
        self._known: list[Any] = []  # the usual signals' handlers, when last looked
        self._wanted: list[tuple[int, Any]] = []  # of all signals those that can raise
        self.thorough = True

    def __enter__(self) -> Shield:
        found = list(map(getsignal, _USUAL))
        if self.thorough or found != self._known:
            self._known = found
            self._wanted = [
                (number, handler)
                for number, handler in zip(
                    _SIGNALS, map(getsignal, _SIGNALS), strict=True
                )
                if callable(handler) and handler is not self._handler
            ]
        self._mode = _Mode.HELD
        try:
            for pair in self._wanted:
                if pair[0] not in _USUAL_SET and getsignal(pair[0]) is not pair[1]:
                    continue  # the program has changed it since the last thorough look
                self._replaced.append(pair)
                set_handler(pair[0], self._handler)
        except BaseException:  # a signal whose handler had its place still
            self._put_back()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._put_back()
        finally:
            self._put_back()  # after an interrupt by a handler that had its place again
            self.raised = None
            if self._caught:
                self._run_caught()

    def _put_back(self) -> None:
        while self._replaced:
            number, handler = self._replaced[-1]
            if getsignal(number) is self._handler:  # else the program has changed it
                set_handler(number, handler)
            self._replaced.pop()

    def _run_caught(self) -> None:
        number = self._caught.pop(0)
        handler = getsignal(number)
        try:
            if callable(handler):
                handler(number, sys._getframe())
        finally:
            if self._caught:
                self._run_caught()

    def _catch(self, number: int, frame: FrameType | None) -> None:
        """Take the place of every handler."""
        if self._mode is not _Mode.FREE:
            self._caught.append(number)
            if self._mode is _Mode.ASLEEP:
                self._mode = _Mode.HELD
                raise Woken
            return
        handler = next(h for replaced, h in self._replaced if replaced == number)
        try:
            handler(number, frame)
        except BaseException as error:
            self._mode, self.raised = _Mode.HELD, error
            raise

    def sleep(self, poll: Callable[[int], list[Any]], timeout: int) -> list[Any]:
        """Poll; a signal ends it.

        Raises:
            Woken: One has come. Its handler runs at the end of the context.
        """
        self._mode = _Mode.ASLEEP
        try:
            if self._caught:
                raise Woken
            return poll(timeout)
        finally:
            self._mode = _Mode.HELD

    def run(self, code: Callable[[], T]) -> T:
        """Run code of the program's, which signals interrupt as they ever do.

        Raises:
            Woken: A signal came before it; it has not been run.
        """
        if self._caught:
            raise Woken
        self._mode, self.raised = _Mode.FREE, None
        try:
            return code()
        finally:
            self._mode = _Mode.HELD


class NoShield:
    """What :class:`Shield` is on a thread that no signal interrupts."""

    raised: BaseException | None = None

    def __enter__(self) -> NoShield:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def sleep(self, poll: Callable[[int], list[Any]], timeout: int) -> list[Any]:
        """Poll."""
        return poll(timeout)

    def run(self, code: Callable[[], T]) -> T:
        """Run code of the program's."""
        return code()


_SHIELD = Shield()
_NO_SHIELD = NoShield()


def shield(*, thorough: bool) -> Shield | NoShield:
    """What this thread needs.

    Args:
        thorough: Whether to look at all signals for handlers that are new, or only at
            the usual ones: then the others must be looked at now and then.
    """
    if threading.get_ident() == threading.main_thread().ident:
        _SHIELD.thorough = thorough
        return _SHIELD
    return _NO_SHIELD

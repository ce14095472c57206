"""How many calls may be in flight: the next one waits for room."""

from __future__ import annotations

import contextlib
import queue
import sys
from typing import TYPE_CHECKING

from zcoll.errors import BacklogError
from zcoll.worker import in_user_code

if TYPE_CHECKING:
    from collections.abc import Callable

CHECK = 0.5  # seconds between looks whether waiting for room still makes sense


class Backlogs:
    """Room for a number of calls in each group.

    Args:
        limit: How many.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._groups: dict[int, Backlog] = {}

    def enter(self, group: int, name: str, check: Callable[[int], None]) -> None:
        """Take room for a call in a group, and wait for it if need be.

        Args:
            group: The group.
            name: The operation's name.
            check: Raises when no more calls can be made in a group.

        Raises:
            BacklogError: There is none, and this thread must not wait.
        """
        self._of(group).enter(group, name, check)

    def enter_at_once(self, group: int) -> None:
        """Take room for a call that is made already, for whoever drives."""
        self._of(group).enter_at_once()

    def _of(self, group: int) -> Backlog:
        backlog = self._groups.get(group)
        if backlog is None:
            backlog = self._groups.setdefault(group, Backlog(self._limit))
        return backlog

    def leave(self, group: int) -> None:
        """A call in a group has ended."""
        backlog = self._groups.get(group)
        if backlog is not None:
            backlog.leave()

    def forget(self, group: int) -> None:
        """Nobody will make another call in a group."""
        self._groups.pop(group, None)


class Backlog:
    """Room for a number of calls.

    Args:
        limit: How many.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # Not a Semaphore: an interrupt inside one may leave its lock held for ever.
        self._room: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(limit):
            self._room.put(None)
        self._owed = 0  # calls that are in flight without room

    def enter(self, group: int, name: str, check: Callable[[int], None]) -> None:
        """Take room for a call: :meth:`Backlogs.enter`."""
        try:
            return self._room.get_nowait()
        except queue.Empty:
            pass
        if in_user_code() or _runs_event_loop():
            raise BacklogError(
                f"{name}: {self._limit} calls are in flight, and this thread must not "
                "wait: await some of their futures first, or raise max_pending"
            )
        while True:
            with contextlib.suppress(queue.Empty):
                return self._room.get(timeout=CHECK)
            check(group)

    def enter_at_once(self) -> None:
        """Take room for a call: :meth:`Backlogs.enter_at_once`."""
        try:
            self._room.get_nowait()
        except queue.Empty:  # other threads were faster
            self._owed += 1

    def leave(self) -> None:
        """A call has ended; only whoever drives says so."""
        if self._owed:
            self._owed -= 1
        else:
            self._room.put(None)


def _runs_event_loop() -> bool:
    """Whether this thread runs one: then asyncio is imported, which takes 20 ms."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None

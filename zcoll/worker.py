"""Threads for the user's own code: reduce functions, and callbacks of futures.

It never runs on the loop thread, where it would keep the sockets waiting.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

from zcoll.errors import ReentrantCallError

if TYPE_CHECKING:
    from collections.abc import Callable

STOP_LIMIT = 0.5  # seconds that stopping waits for a job

_here = threading.local()


def in_user_code() -> bool:
    """Whether this is a thread for reduce functions or callbacks, at work."""
    return getattr(_here, "working", False)


def refuse_inside_user_code(what: str) -> None:
    """Refuse to block on a thread whose progress the group needs.

    Raises:
        ReentrantCallError: This is a reduce function or a callback.
    """
    if in_user_code():
        raise ReentrantCallError(
            f"{what} inside a reduce function or a future's callback would wait for "
            "itself: use the _async form there and collect its result elsewhere"
        )


class user_code:  # noqa: N801 - it is used like a function
    """Mark what runs inside as a reduce function or a callback."""

    def __enter__(self) -> None:
        self._before = in_user_code()
        _here.working = True

    def __exit__(self, *_: object) -> None:
        _here.working = self._before


class Worker:
    """A daemon thread that runs jobs in order. Jobs must not raise."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], None]) -> None:
        """Run a job after those before it."""
        self._jobs.put(job)

    def stop(self, *, wait: bool = True) -> None:
        """End the thread after the jobs that it has; wait a moment for that.

        A job that takes longer is left behind: nobody waits for the user's code.
        """
        self._jobs.put(None)
        if wait and threading.current_thread() is not self._thread:
            self._thread.join(STOP_LIMIT)

    def _run(self) -> None:
        with user_code():
            while (job := self._jobs.get()) is not None:
                job()
                del job  # what it refers to must not live until the next one

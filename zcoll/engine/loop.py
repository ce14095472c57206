"""A thread that sleeps until something happens, and then does one step.

Only this thread touches the machines and the sockets. Other threads hand it jobs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import zmq

from zcoll import codec
from zcoll.errors import GroupError

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger("zcoll.engine")

IDLE = 0.1  # seconds of sleep at most, so that times are noticed
DRAIN_LIMIT = 2.0  # seconds after the last progress that a leaving replica waits


class Loop:
    """The thread, its inbox, and its end.

    A subclass says what a step takes in and does, and what is left to deliver.
    """

    def __init__(self) -> None:
        self._inbox: deque[Callable[[], object]] = deque()
        self._wake_in, self._wake_out = os.pipe()
        for end in (self._wake_in, self._wake_out):
            os.set_blocking(end, False)
        # So that the pipe is not closed meanwhile; a signal handler may come between.
        self._waking = threading.RLock()
        self._sleeping = False
        self._poller = zmq.Poller()
        self._poller.register(self._wake_in, zmq.POLLIN)
        self._thread = threading.Thread(
            target=self._run, name="zcoll-loop", daemon=True
        )
        self._leaving = False
        self._ended = False
        self._progress: Any = None
        self._progress_at: float | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def _post(self, job: Callable[[], object]) -> None:
        """Have a job done by the thread. Jobs are done in order."""
        self._inbox.append(job)
        if self._sleeping:
            self._wake()

    def _wake(self) -> None:
        with self._waking, contextlib.suppress(BlockingIOError):  # it is being woken
            if self._sleeping:  # else it is awake, or has ended and closed the pipe
                os.write(self._wake_out, b"\0")

    def _join(self) -> None:
        """Wait until the thread has ended."""
        if threading.current_thread() is not self._thread and self._thread.ident:
            self._thread.join()

    # --- the thread -------------------------------------------------------

    def _run(self) -> None:
        error: GroupError | None = None
        try:
            while not (self._leaving and self._drained()):
                self._step()
        except Exception as broken:
            _log.exception("zcoll's loop has failed: this is a bug of zcoll")
            error = GroupError(f"zcoll's loop has failed: {codec.describe(broken)}")
        finally:
            self._end(error)

    def _step(self) -> None:
        """Sleep until something happens, and do everything that it asks for."""
        self._sleeping = True
        pause = 0.0 if self._inbox else self._pause()
        ready = {source for source, _ in self._poller.poll(int(pause * 1000))}
        self._sleeping = False
        if self._wake_in in ready:
            os.read(self._wake_in, 4096)
        while self._inbox:
            self._inbox.popleft()()
        now = time.monotonic()
        self._receive(ready, now)
        self._tick(now)
        self._obey(now)

    def _drained(self) -> bool:
        """Whether a replica that leaves may go."""
        now = time.monotonic()
        if self._inbox:
            return False
        done, progress = self._state_of_drain()
        if progress != self._progress or self._progress_at is None:
            self._progress, self._progress_at = progress, now
        if done or now - self._progress_at <= DRAIN_LIMIT:
            return done
        self._hurry()
        self._obey(now)
        return True

    def _end(self, error: GroupError | None) -> None:
        """Close everything; nobody may be left waiting."""
        self._ended = True
        self._sleeping = False
        try:
            self._close()
        except Exception:
            _log.exception("zcoll could not close its sockets")
        while self._inbox:
            try:
                self._inbox.popleft()()
            except Exception:
                _log.exception("zcoll could not do what was left to do")
        self._give_up(error)
        with self._waking:
            os.close(self._wake_in)
            os.close(self._wake_out)

    # --- what a subclass says ---------------------------------------------

    def _pause(self) -> float:
        """How long the thread may sleep, in seconds."""
        return IDLE

    def _receive(self, ready: set[Any], now: float) -> None:
        """Take in what has arrived at the sockets that are ready."""
        raise NotImplementedError

    def _tick(self, now: float) -> None:
        """Notice what has become due."""
        raise NotImplementedError

    def _obey(self, now: float) -> None:
        """Carry out what the machines have decided."""
        raise NotImplementedError

    def _state_of_drain(self) -> tuple[bool, Any]:
        """Whether nothing is left to deliver, and what changes with progress."""
        raise NotImplementedError

    def _hurry(self) -> None:
        """Say goodbye without waiting any longer for what is not delivered."""
        raise NotImplementedError

    def _close(self) -> None:
        """Close the sockets."""
        raise NotImplementedError

    def _give_up(self, error: GroupError | None) -> None:
        """Tell whoever still waits that nothing more will come."""
        raise NotImplementedError

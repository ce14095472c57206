"""Wakes a thread that sleeps in a poll."""

from __future__ import annotations

import contextlib
import os
import threading


class Bell:
    """A pipe whose end becomes readable when it is rung, by any thread.

    Attributes:
        fd: The descriptor to poll.
    """

    def __init__(self) -> None:
        self.fd, self._cord = os.pipe()
        for end in (self.fd, self._cord):
            os.set_blocking(end, False)
        # So that it is not closed meanwhile; a signal handler may come between.
        self._lock = threading.RLock()
        self._closed = False

    def ring(self) -> None:
        """Wake whoever polls it, now or the next time."""
        with self._lock, contextlib.suppress(BlockingIOError):  # it rings already
            if not self._closed:
                os.write(self._cord, b"\0")

    def silence(self) -> None:
        """It has been heard."""
        with contextlib.suppress(BlockingIOError):  # another thread was faster
            os.read(self.fd, 4096)

    def close(self) -> None:
        """Close it. Afterwards ringing it does nothing."""
        with self._lock:
            self._closed = True
            os.close(self.fd)
            os.close(self._cord)

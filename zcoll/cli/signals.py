"""The launcher's signals, as something to read.

No work is done in a signal handler: Python writes the number of each signal to a
pipe, and the launcher reads it where it waits. Handlers are installed all the
same, for without one the first process of a container would ignore most signals.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType, TracebackType

PASSED_ON = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
"""The signals that the replicas get when the launcher gets them."""

FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
"""Those that a terminal sends to all processes of a job, not to one."""


def _let_it_interrupt(signum: int, frame: FrameType | None) -> None:
    """Do nothing: what matters is that Python writes the number to the pipe."""


class Inbox:
    """Collects signals, within a ``with`` block in the main thread.

    What the launcher was started to ignore (SIGHUP under ``nohup``, SIGINT in the
    background of a script) stays ignored, by the replicas as well. After the block
    the handlers stay: a late Ctrl-C must not change the exit code of a job that is
    over, nor keep its files from being removed.
    """

    def __init__(self) -> None:
        self._reader, self._writer = -1, -1

    def __enter__(self) -> Inbox:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for signum in PASSED_ON:
            if signal.getsignal(signum) is not signal.SIG_IGN:
                signal.signal(signum, _let_it_interrupt)
        # Even if it was ignored: then ended children would leave no exit code.
        signal.signal(signal.SIGCHLD, _let_it_interrupt)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        signal.set_wakeup_fd(-1)
        os.close(self._reader)
        os.close(self._writer)

    def wait(self, seconds: float | None) -> list[int]:
        """Wait for signals.

        Args:
            seconds: For how long at most; None is without limit.

        Returns:
            Their numbers, in the order of their arrival; none if none came.
        """
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        # Rounded up: a deadline must have passed when the wait for it is over.
        poll.poll(None if seconds is None else int(seconds * 1000) + 1)
        with contextlib.suppress(BlockingIOError):
            return list(os.read(self._reader, 4096))
        return []

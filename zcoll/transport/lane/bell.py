"""The way to another process's bell: wakes it without ZeroMQ's threads between.

A bell is a pipe that its process polls. Another process opens it through ``/proc``,
and writes a byte: that takes a microsecond, where a ZeroMQ message has to pass two
more threads.
"""

from __future__ import annotations

import contextlib
import os
import stat

from zcoll.transport.lane.segment import Ticket, UnavailableError, boot_id


def bell_ticket(descriptor: int) -> Ticket:
    """What another process needs to ring a pipe of this one.

    Args:
        descriptor: The end that is polled.

    Raises:
        UnavailableError: The system does not say which host this is.
    """
    return Ticket(boot_id(), os.getpid(), descriptor, _identify(descriptor))


class Ringer:
    """Rings another process's bell.

    Args:
        ticket: The bell's.

    Raises:
        UnavailableError: It cannot be reached, or is not what the ticket says.
    """

    def __init__(self, ticket: Ticket) -> None:
        # For reading too: then the pipe has a reader as long as this end is open, and
        # ringing for a process that has just died raises no SIGPIPE.
        self._descriptor = ticket.open(os.O_RDWR)
        if _identify(self._descriptor) != ticket.token:
            os.close(self._descriptor)
            raise UnavailableError("the bell is another's (another container?)")

    def ring(self) -> None:
        """Wake whoever sleeps beside it. Never blocks."""
        with contextlib.suppress(BlockingIOError):  # rung often enough
            os.write(self._descriptor, b"\0")

    def close(self) -> None:
        """Give the way up."""
        os.close(self._descriptor)


def _identify(descriptor: int) -> str:
    """What tells a pipe from every other open file of the host."""
    status = os.fstat(descriptor)
    kind = "pipe" if stat.S_ISFIFO(status.st_mode) else "other"
    return f"{kind} {status.st_dev}:{status.st_ino}"

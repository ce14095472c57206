"""What wakes a process that sleeps, without ZeroMQ's threads between.

A pipe, whose end the other process opens through ``/proc``. Ringing takes a
microsecond; a ZeroMQ message takes two threads more on its way.
"""

from __future__ import annotations

import contextlib
import os
import stat

from zcoll.transport.lane.segment import Ticket, UnavailableError, boot_id


class Bell:
    """What this process listens to, as a descriptor that can be polled.

    Attributes:
        descriptor: Readable once it has been rung.
    """

    def __init__(self) -> None:
        self.descriptor, self._other = os.pipe()
        os.set_blocking(self.descriptor, False)

    @property
    def ticket(self) -> Ticket:
        """What another process needs to ring it."""
        token = _identify(self.descriptor)
        return Ticket(boot_id(), os.getpid(), self._other, token)

    def silence(self) -> None:
        """Take note that it has been rung."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.descriptor, 4096)

    def close(self) -> None:
        """Nobody listens any more."""
        os.close(self.descriptor)
        os.close(self._other)


class Ringer:
    """The way to another process's bell.

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
            self.close()
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

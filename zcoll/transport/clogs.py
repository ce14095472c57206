"""Connections whose peer has stopped reading.

libzmq answers for a process that is only busy, and finds one that is stopped by its
heartbeats. But it cannot ask while it has something else to send that the peer does
not take, and a stopped process takes nothing. Over TCP the kernel notices that
(``TCP_USER_TIMEOUT``); over a socket file nobody does, so this is done here: a
connection that takes nothing for too long is shut down, and libzmq sees it end.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat

_LOOKS = 16  # how often, within the limit, connections are looked at


class Clogs:
    """Watches the connections of a socket file, by their descriptors.

    Args:
        path: The socket file. What no longer belongs to it is left alone: libzmq
            may have closed a descriptor whose number is used again.
        limit: Seconds in which a living peer has taken something.
    """

    def __init__(self, path: str, limit: float) -> None:
        self._path = path
        self._limit = limit
        self._since: dict[int, float | None] = {}  # by descriptor: when it was clogged
        self._looked = 0.0

    def opened(self, fd: int) -> None:
        """A connection was made."""
        self._since[fd] = None

    def closed(self, fd: int) -> None:
        """A connection has ended."""
        self._since.pop(fd, None)

    def cut(self, now: float) -> None:
        """Shut down what has taken nothing for too long."""
        if not self._since or now - self._looked < self._limit / _LOOKS:
            return
        self._looked = now
        poller = select.poll()
        for fd in self._since:
            poller.register(fd, select.POLLOUT)
        ready = {fd for fd, _ in poller.poll(0)}  # with those that are broken
        for fd, since in self._since.items():
            if fd in ready:
                self._since[fd] = None
            elif since is None:
                self._since[fd] = now
            elif now - since >= self._limit:
                self._since[fd] = None
                self._shut_down(fd)

    def _shut_down(self, fd: int) -> None:
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                return
            with socket.socket(fileno=os.dup(fd)) as connection:
                if self._path in (connection.getsockname(), connection.getpeername()):
                    connection.shutdown(socket.SHUT_RDWR)

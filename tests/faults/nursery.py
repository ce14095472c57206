"""Forks processes for tests, with everything imported already; runs as a program.

Each process is a puppet: it does what it is told, and tells what it does. It is a
program like any other: it ends as one, with exit hooks and uncaught exceptions.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable


class Strings:
    """A puppet's end of the strings: orders come, and news goes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._orders: BinaryIO
        self._news: BinaryIO

    def tie(self, fd: int) -> None:
        """Make this process the puppet at this end."""
        with socket.socket(fileno=fd) as connection:
            self._orders = connection.makefile("rb")
            self._news = connection.makefile("wb")

    def say(self, name: str, value: Any = None) -> None:
        """Tell the test of something, with the time."""
        at = time.monotonic()
        try:
            news = pickle.dumps((name, at, value))
        except Exception:
            news = pickle.dumps((name, at, repr(value)))
        with self._lock:
            self._news.write(news)
            self._news.flush()

    def dance(self) -> None:
        """Do what is told until there are no more orders."""
        while True:
            try:
                act, arguments, caught = pickle.load(self._orders)
            except EOFError:
                return
            if caught:
                self._try(act, arguments)
            else:
                act(*arguments)

    def _try(self, act: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        try:
            value = act(*arguments)
        except BaseException as error:
            self.say("failed", error)
        else:
            self.say("ended", value)


strings = Strings()
say = strings.say


def serve(door: socket.socket) -> None:
    """Fork for everybody who asks; return in each child."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead are buried at once
    while True:
        asked, fds, _, _ = socket.recv_fds(door, 1, 2)
        if not asked:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            break
        for fd in fds:
            os.close(fd)
        door.sendall(pid.to_bytes(4, "big"))
    door.close()
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Whoever runs the tests in the background of a script has SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    channel, errors = fds
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    os.close(errors)
    strings.tie(channel)


def main() -> None:
    """Import what puppets need, and let them be made."""
    # For the children. Each of them imports this module.
    import faults.acts  # noqa: PLC0415
    import faults.acts_errors  # noqa: PLC0415
    import faults.acts_reports  # noqa: PLC0415
    import faults.acts_threads  # noqa: F401, PLC0415

    serve(socket.socket(fileno=int(sys.argv[1])))
    strings.dance()


if __name__ == "__main__":
    from faults import nursery  # this module, by the name that acts import it by

    nursery.main()

"""Processes that do what a test tells them, and can be killed and stopped.

What a puppet does are the functions of :mod:`faults.acts`. Times are those of the
monotonic clock, which is the same in all processes of a host.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from job import ROOT, clean_environment
from launch import is_running, wait_gone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

LIMIT = 30.0  # seconds for whatever must happen some time
ENDS = ("ended", "failed", "gone")  # of an act


@dataclass(frozen=True)
class News:
    """What a puppet has told.

    Attributes:
        name: ``ended`` or ``failed`` of an act; else what the act says.
        at: When.
        value: What the act returned, or raised, or says.
    """

    name: str
    at: float
    value: Any


class Puppet:
    """A process that does one act after the other."""

    def __init__(self, pid: int, connection: socket.socket, errors: Any) -> None:
        self.pid = pid
        self._connection = connection
        self._orders = connection.makefile("wb")
        self._errors = errors
        # Not a SimpleQueue: that of 3.10 may wait for ever when its time is over.
        self._news: queue.Queue[News] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with self._connection.makefile("rb") as stream:
            while True:
                try:
                    news = News(*pickle.load(stream))
                except Exception:
                    break
                self._news.put(news)
        self._news.put(News("gone", time.monotonic(), None))

    def tell(
        self, act: Callable[..., Any], *arguments: Any, caught: bool = True
    ) -> None:
        """Let it do something, after what it was told before.

        Args:
            act: A function of an importable module.
            arguments: Its arguments.
            caught: Whether errors are told, and the next act follows. Otherwise
                they end the program.
        """
        pickle.dump((act, arguments, caught), self._orders)
        self._orders.flush()

    def next(self, deadline: float) -> News:
        """Wait for whatever it tells next."""
        try:
            return self._news.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise AssertionError(f"{self.pid} is silent\n{self.errors}") from None

    def expect(self, name: str, limit: float = LIMIT) -> News:
        """Wait until it tells this, and pass over what is not the end of an act."""
        deadline = time.monotonic() + limit
        while (news := self.next(deadline)).name != name:
            if news.name in ENDS:
                raise AssertionError(
                    f"{name!r} expected, got {news.name}: {news.value!r}\n{self.errors}"
                )
        return news

    def expect_end(self, limit: float = LIMIT) -> News:
        """Wait until an act has ended, well or not."""
        deadline = time.monotonic() + limit
        while (news := self.next(deadline)).name not in ENDS:
            pass
        return news

    def expect_silence(self, seconds: float) -> None:
        """Check that no act ends for that long."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                news = self._news.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return
            assert news.name not in ENDS, f"{news.name}: {news.value!r}\n{self.errors}"

    def do(self, act: Callable[..., T], *arguments: Any) -> T:
        """Let it do something, and give what comes of it."""
        self.tell(act, *arguments)
        result: T = self.expect("ended").value
        return result

    def signal(self, number: int) -> float:
        """Send it a signal, and give the time."""
        at = time.monotonic()
        os.kill(self.pid, number)
        return at

    def bury(self) -> None:
        """End it, however it is."""
        if is_running(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        wait_gone([self.pid])
        with contextlib.suppress(OSError):
            self._orders.close()
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._reader.join(LIMIT)
        self._connection.close()
        self._errors.close()

    @property
    def errors(self) -> str:
        """What it has written to its standard output and error."""
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), size, 0).decode(errors="replace")


class Nursery:
    """Makes puppets, also for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._door, theirs = socket.socketpair()
        self._door.settimeout(LIMIT)
        paths = [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "faults.nursery", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=clean_environment(PYTHONPATH=os.pathsep.join(filter(None, paths))),
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
            )

    def puppet(self) -> Puppet:
        """Make a process."""
        ours, theirs = socket.socketpair()
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by bury
        with theirs, self._lock:
            socket.send_fds(self._door, [b"?"], [theirs.fileno(), errors.fileno()])
            pid = int.from_bytes(self._door.recv(4), "big")
        return Puppet(pid, ours, errors)

    @contextlib.contextmanager
    def puppets(self, count: int) -> Iterator[list[Puppet]]:
        """Make processes, and end them afterwards."""
        with contextlib.ExitStack() as stack:
            made = []
            for _ in range(count):
                made.append(self.puppet())
                stack.callback(made[-1].bury)
            yield made

    def close(self) -> None:
        """End the program that forks."""
        self._door.close()
        self._process.wait(LIMIT)

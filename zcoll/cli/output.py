"""What the replicas print, passed on line by line with their ranks in front.

One :class:`Pump`, a thread, carries one stream (standard output or standard
error) of all replicas to an :class:`Outlet`. Beside the prefixes nothing is
changed: a line is held until it is whole, whatever bytes it is made of, and then
written in one piece. Two cases cannot wait for the end of a line: on a terminal,
what stands there for a moment is shown (a question, a progress bar); and a line
beyond :data:`LONGEST` is passed on in parts. If another replica prints while
such a line is open, it is cut there and goes on, with its prefix, below.

A reader that is slow holds up the replicas (their pipes fill) and loses nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import selectors
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST = 16 * 1024 * 1024
"""A line is held in memory up to this size, in bytes."""

DRAIN = 1.0
"""Seconds for which a pipe that some grandchild holds open is still read."""

_QUIET = 0.1  # seconds after which a terminal shows an unfinished line
_CHUNK = 64 * 1024
_PIPE = 1024 * 1024  # no pipe holds more
_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
_RESTART = re.compile(rb"\r(?=[^\r\n])")


def prefix_of(name: str, *, colour: bool) -> bytes:
    """Write what stands in front of the lines of a replica."""
    plain = f"[{name}]".encode()
    if not colour:
        return plain + b" "
    number = int(name.rpartition("-")[2])
    return b"\x1b[%dm%b\x1b[0m " % (_COLOURS[number % len(_COLOURS)], plain)


@dataclass(slots=True)
class _OpenLine:
    """Whose unfinished line the last output was, if it was one."""

    owner: tuple[int, bytes] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class Outlet:
    """A file descriptor that lines of several replicas are written to.

    Args:
        fd: The descriptor; it stays open.
        twin: Another outlet. If both lead to the same place (a terminal, a log),
            they keep out of each other's unfinished lines.
    """

    def __init__(self, fd: int, twin: Outlet | None = None) -> None:
        self._fd = fd
        self.terminal = os.isatty(fd)
        same = twin is not None and os.path.sameopenfile(fd, twin._fd)
        self._line: _OpenLine = twin._line if twin and same else _OpenLine()

    def write(self, prefix: bytes, text: bytes) -> None:
        """Write some lines of one replica; the last one may be unfinished.

        Raises:
            OSError: The reader has gone, or the disk is full.
        """
        with self._line.lock:
            self._write_all(self._render(prefix, text))

    def _render(self, prefix: bytes, text: bytes) -> bytes:
        whole = text.endswith(b"\n")
        body = text[:-1] if whole else text
        restarts = self.terminal and body.startswith(b"\r")
        if self.terminal:  # a carriage return starts a line that is seen alone
            body = _RESTART.sub(lambda _: b"\r" + prefix, body)
        body = body.replace(b"\n", b"\n" + prefix)
        owner, me = self._line.owner, (self._fd, prefix)
        self._line.owner = None if whole else me
        lead = b""
        if owner is None:
            lead = prefix
        elif owner != me and not restarts:
            lead = b"\n" + prefix
        return lead + body + (b"\n" if whole else b"")

    def _write_all(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:  # somebody made the descriptor non-blocking
                poll = select.poll()
                poll.register(self._fd, select.POLLOUT)
                poll.poll()


@dataclass(slots=True, eq=False)
class _Source:
    """The reading end of one pipe, and the unfinished line that came from it."""

    fd: int
    prefix: bytes
    held: bytearray = field(default_factory=bytearray)
    due: float | None = None  # when a terminal shows what is held


class Pump(threading.Thread):
    """Carries the output of all replicas, and the launcher's own, to an outlet.

    If the outlet fails, the pipes are closed: the replicas see what they would
    see without a launcher between.

    Args:
        outlet: Where it goes.
        pipes: Prefix and descriptor of each pipe; the pump closes the latter.
        name: The prefix of the launcher's own messages.

    Attributes:
        error: Why the outlet failed, or None.
    """

    def __init__(
        self, outlet: Outlet, pipes: Iterable[tuple[bytes, int]], name: str
    ) -> None:
        super().__init__(name="zcoll-output", daemon=True)
        self.error: OSError | None = None
        self._outlet = outlet
        self._deadline: float | None = None
        self._selector = selectors.DefaultSelector()
        ear, self._mouth = os.pipe()
        os.set_blocking(self._mouth, False)
        self._ear = self._add(f"{name}: ".encode(), ear)
        for prefix, fd in pipes:
            self._add(prefix, fd)

    def say(self, line: str) -> None:
        """Print a line of the launcher's own; never blocks."""
        # If nobody reads this any more, there is nobody to tell.
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            os.write(self._mouth, line.encode() + b"\n")

    def finish(self) -> None:
        """All replicas have ended: print the rest, and end soon."""
        os.close(self._mouth)

    def run(self) -> None:
        """Carry, until all pipes are at their end."""
        try:
            while self._selector.get_map():
                self._step()
        except OSError as error:
            self.error = error
        finally:
            for source in self._sources():
                self._drop(source)
            self._selector.close()

    def _add(self, prefix: bytes, fd: int) -> _Source:
        os.set_blocking(fd, False)
        source = _Source(fd, prefix)
        self._selector.register(fd, selectors.EVENT_READ, source)
        return source

    def _sources(self) -> list[_Source]:
        return [key.data for key in self._selector.get_map().values()]

    def _step(self) -> None:
        for key, _ in self._selector.select(self._patience()):
            self._carry(key.data)
        now = time.monotonic()
        if self._outlet.terminal:
            for source in self._sources():
                if source.due is not None and now >= source.due:
                    self._show_unfinished(source)
        if self._deadline is not None and now >= self._deadline:
            for source in self._sources():
                self._carry(source, _PIPE)
                self._end(source)

    def _patience(self) -> float | None:
        """Say how long to wait for more, in seconds."""
        times = [] if self._deadline is None else [self._deadline]
        if self._outlet.terminal:
            times += [s.due for s in self._sources() if s.due is not None]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _carry(self, source: _Source, size: int = _CHUNK) -> None:
        """Read once, and pass on the lines that are whole."""
        try:
            data = os.read(source.fd, size)
        except BlockingIOError:
            return
        if not data:
            self._end(source)
            return
        cut = data.rfind(b"\n") + 1
        if cut:
            self._outlet.write(source.prefix, bytes(source.held) + data[:cut])
            source.held.clear()
        source.held += data[cut:]
        source.due = time.monotonic() + _QUIET if source.held else None
        if len(source.held) > LONGEST:
            self._show_unfinished(source)

    def _show_unfinished(self, source: _Source) -> None:
        # The carriage return at the end of a progress bar would hide it, or be
        # the first half of a line's end: it waits for what follows.
        text = bytes(source.held)
        shown = text.rstrip(b"\r")
        source.held[:] = text[len(shown) :]
        source.due = None
        if shown:
            self._outlet.write(source.prefix, shown)

    def _end(self, source: _Source) -> None:
        """Pass on a last line without an end, and close the pipe."""
        if source is self._ear:
            self._deadline = time.monotonic() + DRAIN
        if self._drop(source) and source.held:
            self._outlet.write(source.prefix, bytes(source.held))

    def _drop(self, source: _Source) -> bool:
        """Close a pipe; say whether it was open."""
        if source.fd not in self._selector.get_map():
            return False
        self._selector.unregister(source.fd)
        os.close(source.fd)
        return True

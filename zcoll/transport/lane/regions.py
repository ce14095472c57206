"""Memory of rank 0 that all replicas of its host read: what they all get stands once.

The data of an outcome is written into a region here when the first replica is sent it,
and each replica's ring gets a reference to it. That two messages have the same data
is known by its place in rank 0's memory. A region keeps that memory from being used
for anything else.

A region is used again when everybody who was sent a reference has consumed that
message: the word in its ring tells. Who has lost its lane may still be reading, as a
process that was stopped for long and does not know yet. Its claim, a lock, tells when
it has let go of the memory; until then what it was sent stays as it is.

Replicas map this memory for reading only. Where there is no room, data goes through
the rings.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zcoll.transport.lane.ring import CONSUMED
from zcoll.transport.lane.segment import Segment

if TYPE_CHECKING:
    from zcoll.payload import Buffer
    from zcoll.transport.lane.ring import Writer

_log = logging.getLogger("zcoll.lane")

SIZE = (
    16 * 1024 * 1024
)  # bytes of the segment: twice what one replica is sent at a time
LEAST = 32 * 1024  # bytes of data; less goes through the rings
IDLE = 5.0  # seconds without use after which memory is given back
_STEP = 1024 * 1024  # bytes that are reserved at a time
_PAGE = mmap.PAGESIZE  # the first one holds the token
_AT_REST = (_PAGE, SIZE)  # bytes that are reserved, and those that can be

Key = tuple[int, int]  # where data stands in this process's memory, and its size


@dataclass(slots=True, eq=False)
class _Region:
    """A piece of the segment.

    Attributes:
        key: What stands there.
        data: The same; keeps the memory from being used for anything else.
        start: Where.
        end: Where it ends.
        sent: References that were sent.
        unread: Those of them that have not been consumed.
    """

    key: Key
    data: memoryview
    start: int
    end: int
    sent: int = 0
    unread: int = 0


class Regions:
    """Rank 0's segment, and what stands in it.

    Raises:
        UnavailableError: There is no shared memory.
    """

    def __init__(self) -> None:
        self._segment = Segment.create(SIZE)
        self.ticket = self._segment.ticket
        self._regions: list[_Region] = []  # in the order of their places
        self._known: dict[Key, _Region] = {}  # the same
        self._readers: list[Reading] = []
        self._gone: list[Reading] = []  # without a lane, but perhaps still reading
        self._claims = 0
        self._reserved, self._limit = _AT_REST  # less while there is no room for more
        self._used = False  # since the last tick
        self._used_at = 0.0

    # --- readers ----------------------------------------------------------

    def next_claim(self) -> int:
        """A number by which one more reader can make its claim."""
        self._claims += 1
        return self._claims

    def join(self, claim: int, writer: Writer, words: memoryview) -> Reading:
        """A replica reads this memory.

        Args:
            claim: The number of its claim.
            writer: What writes its ring.
            words: Its own words.
        """
        reading = Reading(self, claim, writer, words)
        self._readers.append(reading)
        return reading

    def part(self, reading: Reading) -> None:
        """A replica's lane is closed."""
        self._readers.remove(reading)
        self._gone.append(reading)

    def _settle(self) -> None:
        """Note what has been consumed."""
        for reading in self._readers:
            reading.settle()
        for reading in self._gone.copy():
            if not (reading.holds and self._segment.is_claimed(reading.claim)):
                reading.let_go()
                self._gone.remove(reading)

    # --- regions ----------------------------------------------------------

    def place(self, data: Buffer) -> _Region | None:
        """Where data stands, or stands from now on; None if it cannot."""
        if len(data) < LEAST or len(self._readers) < 2:
            return None  # for a single reader it is no less work
        self._used = True
        view = memoryview(data)
        key = (_address(view), len(view))
        return self._known.get(key) or self._write(key, view)

    def _write(self, key: Key, data: memoryview) -> _Region | None:
        self._settle()
        self._forget(least=len(self._readers))
        found = self._find(len(data))
        if found is None and self._forget(least=0):
            found = self._find(len(data))
        if found is None:
            return None
        index, start = found
        end = start + len(data)
        self._segment.memory[start:end] = data
        region = self._known[key] = _Region(key, data, start, end)
        self._regions.insert(index, region)
        return region

    def _forget(self, least: int) -> bool:
        """Forget what nobody reads, and so many have been sent; tell if there was any.

        Anybody else who is sent it would have it written once more.
        """
        done = [r for r in self._regions if not r.unread and r.sent >= least]
        for region in done:
            self._regions.remove(region)
            del self._known[region.key]
        return bool(done)

    def _find(self, size: int) -> tuple[int, int] | None:
        """The first place with room: its index among the regions, and its start."""
        start = _PAGE
        for index, region in enumerate(self._regions):
            if start + size <= region.start:
                return index, start
            start = _whole_pages(region.end)
        return (len(self._regions), start) if self._reserve(start + size) else None

    def _reserve(self, end: int) -> bool:
        """Make sure that memory is reserved up to here."""
        if end <= self._reserved:
            return True
        if end > self._limit:
            return False
        end = min(_PAGE + -(-(end - _PAGE) // _STEP) * _STEP, SIZE)
        if self._segment.reserve(self._reserved, end - self._reserved):
            self._reserved = end
            return True
        self._limit = self._reserved  # until it has been idle
        _log.debug("no room for more shared memory: outcomes go to each replica")
        return False

    def tick(self, now: float) -> None:
        """Time has passed: give back memory that is not needed any more."""
        if self._used:
            self._used, self._used_at = False, now
        elif now - self._used_at >= IDLE and (self._reserved, self._limit) != _AT_REST:
            self._settle()
            self._forget(least=0)
            end = _whole_pages(self._regions[-1].end) if self._regions else _PAGE
            if end < self._reserved:
                self._segment.release(end, self._reserved - end)
            self._reserved, self._limit = end, SIZE

    @property
    def reserved(self) -> int:
        """Bytes of memory in use."""
        return self._segment.reserved

    def close(self) -> None:
        """Let go of the memory. Who reads it can still do so.

        It writes nothing, so it is right in a forked child too.
        """
        self._regions.clear()
        self._known.clear()
        self._segment.close()


class Reading:
    """What one replica has been sent of the regions.

    Attributes:
        claim: The number of its claim.
        holds: What it may still read, by the messages that refer to it.
    """

    def __init__(
        self, regions: Regions, claim: int, writer: Writer, words: memoryview
    ) -> None:
        self.claim = claim
        self.holds: deque[tuple[int, _Region]] = deque()
        self._regions = regions
        self._writer = writer
        self._words = words

    def write(self, frames: list[Buffer]) -> bool:
        """Write a message into the replica's ring, with its data or a reference.

        Returns:
            False if there is no space now, as :meth:`Writer.write`.

        Raises:
            FullError, ProtocolError: As :meth:`Writer.write`.
        """
        region = self._regions.place(frames[1]) if len(frames) > 1 else None
        if region is None:
            return self._writer.write(frames)
        size = region.end - region.start
        if not self._writer.refer(frames[0], region.start, size):
            return False
        region.sent += 1
        region.unread += 1
        self.holds.append((self._writer.written, region))
        return True

    def settle(self) -> None:
        """Note what the replica has consumed."""
        consumed = self._words[CONSUMED]
        while self.holds and self.holds[0][0] <= consumed:
            self.holds.popleft()[1].unread -= 1

    def let_go(self) -> None:
        """The replica reads nothing any more."""
        while self.holds:
            self.holds.popleft()[1].unread -= 1

    def close(self) -> None:
        """The replica's lane is about to be closed."""
        self.settle()
        self._regions.part(self)


class _PyBuffer(ctypes.Structure):
    """``Py_buffer`` of CPython: only its first field is looked at."""

    _fields_ = (("place", ctypes.c_void_p), ("rest", ctypes.c_char * 120))


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_PyBuffer)]
_release_buffer.restype = None


def _address(data: memoryview) -> int:
    """Where data stands; :mod:`ctypes` itself only tells it of what can be written."""
    buffer = _PyBuffer()
    _get_buffer(data, buffer, 0)
    place = buffer.place or 0
    _release_buffer(buffer)
    return place


def _whole_pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE

"""One direction of the lane: whole messages, from one process to one other.

Each side has three words of its own, which only it writes, by one aligned 8-byte
store each:

- ``PUBLISHED``: messages that it has written. Stored last, so a writer that dies at
  any instant leaves a whole message or none.
- ``CONSUMED``: messages of the other side that it has read. Stored once their memory
  is no longer looked at.
- ``ASLEEP``: 0 while it is awake; see :mod:`zcoll.transport.lane.lane`.

The messages stand one behind the other in the ring's space, each in one piece, with
its sizes in front. Where the next one does not fit, a mark sends the reader back to
the start. Only the writer knows where free space is; the reader needs no more than its
own place, and a message that makes no sense is an error, never a read outside.

Instead of its data, a message may have a reference: where the data stands in memory
that several readers share; see :mod:`zcoll.transport.lane.regions`.

The writer reserves memory as it needs it, and gives it back when it has been idle.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING

from zcoll.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from zcoll.payload import Buffer

WORDS = 3  # of each side
PUBLISHED, CONSUMED, ASLEEP = range(WORDS)

_SIZES = struct.Struct("=II")  # of the head, and of the data plus 1; 0 without data
_BACK = _SIZES.pack(0xFFFFFFFF, 0xFFFFFFFF)  # instead: go on at the start
_EMPTY = _SIZES.size  # bytes of a message without any
_REFERS = 0x80000000  # bit of the second size: the data is a reference
_REFERENCE = struct.Struct("=QQ")  # where the data stands, and its size


class FullError(Exception):
    """A message does not fit, and there is no memory for more space."""


class Writer:
    """The side that writes.

    Args:
        own: This side's words.
        other: The reader's words.
        space: Where the messages stand.
        least: Bytes of space that are reserved from the start and always. More is
            reserved in multiples of it.
        reserve: Reserves space, from and so many bytes; False if there is no room.
        release: Gives reserved space back.

    Attributes:
        written: Messages that have been written.
    """

    def __init__(
        self,
        own: memoryview,
        other: memoryview,
        space: memoryview,
        least: int,
        reserve: Callable[[int, int], bool],
        release: Callable[[int, int], None],
    ) -> None:
        self._own = own
        self._other = other
        self._space = space
        self._least = self._reserved = least
        self._reserve = reserve
        self._release = release
        self._place = 0  # where the next message goes, if it fits
        # Where the messages begin, or the marks that lead to them: so the first is
        # where the reader is.
        self._unread: deque[int] = deque()
        self._read = 0
        self.written = 0

    def refer(self, head: Buffer, start: int, size: int) -> bool:
        """Write a message whose data stands in the regions; as :meth:`write`."""
        return self.write([head, _REFERENCE.pack(start, size)], _REFERS)

    def write(self, frames: list[Buffer], mark: int = 0) -> bool:
        """Write a message of one or two frames, and publish it.

        Returns:
            False if there is no space now; there will be when the other side has
            read what it has. An empty message may have been published instead.

        Raises:
            FullError: There never will be.
            ProtocolError: The other side's words make no sense.
        """
        size = sum(map(len, frames)) + 7 & ~7
        # Behind every message there is room for the mark that sends the reader back.
        start = self._find(_SIZES.size + size + _SIZES.size)
        if start is None:
            return False
        self._publish(start, frames, mark)
        return True

    def _publish(self, start: int, frames: list[Buffer], mark: int) -> None:
        self._unread.append(self._place)
        if start != self._place:
            self._space[self._place : self._place + _SIZES.size] = _BACK
        head = frames[0]
        body = start + _SIZES.size
        end = body + len(head)
        self._space[body:end] = head
        marked = 0
        if len(frames) > 1:
            data = frames[1]
            self._space[end : end + len(data)] = data
            end += len(data)
            marked = len(data) + 1 | mark
        self._space[start:body] = _SIZES.pack(len(head), marked)
        self._place = end + 7 & ~7
        self.written += 1
        self._own[PUBLISHED] = self.written

    def _find(self, size: int) -> int | None:
        """Where a message of this size can stand, or None while there is no space."""
        self._note_read()
        first = self._unread[0] if self._unread else None
        if first is not None and self._place <= first:  # it has gone back already
            return self._place if self._place + size <= first else None
        if self._place + size <= self._reserved:
            return self._place
        if size <= (self._place if first is None else first):
            return 0
        if self._grow(self._place + size):
            return self._place
        if _EMPTY + size > len(self._space):
            raise FullError
        if first is None:
            if self._place <= _EMPTY:
                raise FullError
            self._go_back()
        return None

    def _go_back(self) -> None:
        """Take the reader back to the start, by a message without any bytes.

        A larger one could overwrite the mark that sends the reader there.
        """
        self._publish(0, [b""], 0)

    def _grow(self, least: int) -> bool:
        """Reserve so much space, and rather more."""
        whole = -(-least // self._least) * self._least
        for size in (max(whole, 2 * self._reserved), whole):
            end = min(size, len(self._space))
            if end >= least and self._reserve(self._reserved, end - self._reserved):
                self._reserved = end
                return True
        return False

    def _note_read(self) -> None:
        read = self._other[CONSUMED]
        if not self._read <= read <= self.written:
            raise ProtocolError(f"{read} messages read of {self.written} written")
        while self._read < read:
            self._unread.popleft()
            self._read += 1

    def shrink(self) -> bool:
        """Give back what was reserved for large messages, once all is read.

        Returns:
            Whether a message was written: one without any bytes, which takes the
            reader back to the start. Call it again when it has been read.
        """
        self._note_read()
        if self._unread or self._reserved == self._least:
            return False
        if self._place > self._least // 2:
            self._go_back()
            return True
        self._release(self._least, self._reserved - self._least)
        self._reserved = self._least
        return False

    @property
    def reserved(self) -> int:
        """Bytes of space that are in use."""
        return self._reserved


class Reader:
    """The side that reads.

    Args:
        own: This side's words.
        other: The writer's words.
        space: Where the messages stand.
        regions: What references refer to; empty if there must not be any.

    Attributes:
        count: Messages that have been read.
    """

    def __init__(
        self,
        own: memoryview,
        other: memoryview,
        space: memoryview,
        regions: memoryview,
    ) -> None:
        self._own = own
        self._other = other
        self._space = space
        self._regions = regions
        self._place = 0
        self.count = 0
        self._next: int | None = None
        self._lent: memoryview | None = None

    def read(self) -> list[Buffer] | None:
        """Look at the next message, or None.

        Its second frame is shared memory: it is lent until :meth:`done`.

        Raises:
            ProtocolError: What stands there is no message.
        """
        if self._other[PUBLISHED] == self.count:
            return None
        if self._space[self._place : self._place + _SIZES.size] == _BACK:
            self._place = 0
        head_size, marked = _SIZES.unpack_from(self._space, self._place)
        refers, marked = marked & _REFERS, marked & ~_REFERS
        start = self._place + _SIZES.size
        end = start + head_size
        last = end + max(0, marked - 1)
        following = self._place + _SIZES.size + (last - start + 7 & ~7)
        if following + _SIZES.size > len(self._space):
            raise ProtocolError("a message that does not fit its ring")
        self._next = following
        frames: list[Buffer] = [bytes(self._space[start:end])]
        if marked:
            data = self._space[end:last]
            self._lent = self._look_up(data) if refers else data
            frames.append(self._lent)
        return frames

    def _look_up(self, reference: memoryview) -> memoryview:
        """The data that a reference refers to."""
        if len(reference) != _REFERENCE.size:
            raise ProtocolError("a reference that is none")
        start, size = _REFERENCE.unpack(reference)
        if start + size > len(self._regions):
            raise ProtocolError("a reference to memory that there is not")
        return self._regions[start : start + size]

    def done(self) -> bool:
        """The message that was read last is no longer looked at; False if none was."""
        if self._next is None:
            return False
        self.take_back()
        self._place, self._next = self._next, None
        self.count += 1
        self._own[CONSUMED] = self.count
        return True

    def take_back(self) -> None:
        """Let nobody look any more at what was lent."""
        if self._lent is not None:
            self._lent.release()
            self._lent = None

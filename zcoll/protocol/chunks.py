"""Large payloads, cut into chunks of at most 1 MiB and joined again."""

from __future__ import annotations

from zcoll.errors import ProtocolError
from zcoll.memory import Growing, copy_of
from zcoll.payload import Buffer, Payload
from zcoll.wire import CHUNK_SIZE, Kind, Message, pack_place, parse_place

Key = tuple[int, int]  # a call: (group, seq)


class Sending:
    """A payload of which chunks are still to be cut."""

    __slots__ = ("key", "offset", "part", "payload")

    def __init__(self, key: Key, payload: Payload) -> None:
        self.key = key
        self.payload = payload
        self.part = self.offset = 0  # where the next one begins

    def next_chunk(self) -> Message | None:
        """Cut the next chunk, or None when nothing is left."""
        parts = self.payload.parts
        while self.part < len(parts):
            view = memoryview(parts[self.part])
            if self.offset < view.nbytes:
                data = view[self.offset : self.offset + CHUNK_SIZE].toreadonly()
                place = pack_place(self.part, self.offset)
                self.offset += len(data)
                return Message(
                    Kind.CHUNK,
                    group=self.key[0],
                    seq=self.key[1],
                    body=place,
                    data=data if self.payload.stable else copy_of(data),
                )
            self.part += 1
            self.offset = 0
        return None


class Assembly:
    """A payload of which chunks are still to come. It grows only as they do.

    A part that comes whole, in memory that may be written, is not copied: that is
    the socket's own, which nobody else has.

    Args:
        sizes: Those of its parts in bytes; not all are 0.

    Attributes:
        parts: Those that are complete.
    """

    def __init__(self, sizes: list[int]) -> None:
        self.parts: list[Buffer] = []
        self._sizes = sizes
        self._open_part()

    def _open_part(self) -> None:
        """Start the part that the next chunk belongs to, if there is one."""
        while len(self.parts) < len(self._sizes):
            self._size = self._sizes[len(self.parts)]
            self._part = Growing(self._size)
            if self._size:
                break
            self.parts.append(self._part.finish())

    def add(self, message: Message) -> bool:
        """Add a chunk; tell whether the payload is complete."""
        place = parse_place(message.body)
        data = message.data or b""
        part = self._part
        if place != (len(self.parts), len(part)):
            raise ProtocolError(f"a chunk for {place} out of order")
        if not 0 < len(data) <= self._size - len(part):
            raise ProtocolError(f"a chunk of {len(data)} bytes does not fit its part")
        if len(data) == self._size and _is_ours(data):
            self.parts.append(data)
        else:
            part.add(data)
            if len(part) < self._size:
                return False
            self.parts.append(part.finish())
        self._open_part()
        return len(self.parts) == len(self._sizes)


def _is_ours(data: Buffer) -> bool:
    return isinstance(data, memoryview) and not data.readonly

"""Large payloads, cut into chunks of at most 1 MiB and joined again."""

from __future__ import annotations

from dataclasses import dataclass, field

from zcoll.errors import ProtocolError
from zcoll.wire import (
    CHUNK_SIZE,
    Buffer,
    Kind,
    Message,
    Payload,
    pack_place,
    parse_place,
)

Key = tuple[int, int]  # a call: (group, seq)


@dataclass(slots=True)
class Sending:
    """A payload of which chunks are still to be cut."""

    key: Key
    payload: Payload
    part: int = 0
    offset: int = 0

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
                    data=data if self.payload.stable else bytes(data),
                )
            self.part += 1
            self.offset = 0
        return None


@dataclass(slots=True)
class Assembly:
    """A payload of which chunks are still to come. It grows only as they do.

    A part that comes whole, in memory that may be written, is not copied: that is
    the socket's own, which nobody else has.
    """

    sizes: list[int]
    parts: list[bytearray | memoryview] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._open_parts()

    def _open_parts(self) -> None:
        """Start the part that the next chunk belongs to."""
        while len(self.parts) < len(self.sizes) and (
            not self.parts or len(self.parts[-1]) == self.sizes[len(self.parts) - 1]
        ):
            self.parts.append(bytearray())

    def add(self, message: Message) -> bool:
        """Add a chunk; tell whether the payload is complete."""
        place = parse_place(message.body)
        data = message.data or b""
        part = len(self.parts) - 1
        if place != (part, len(self.parts[part])):
            raise ProtocolError(f"a chunk for {place} out of order")
        if len(data) > self.sizes[part] - len(self.parts[part]) or not len(data):
            raise ProtocolError(f"a chunk of {len(data)} bytes does not fit its part")
        held = self.parts[part]
        if len(data) == self.sizes[part] and _is_ours(data):
            self.parts[part] = memoryview(data)
        elif isinstance(held, bytearray):
            held += data
        self._open_parts()
        return (
            len(self.parts) == len(self.sizes) and len(self.parts[-1]) == self.sizes[-1]
        )


def _is_ours(data: Buffer) -> bool:
    return isinstance(data, memoryview) and not data.readonly

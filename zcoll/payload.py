"""The bytes of values, and whose memory they are.

Everything here is pure: no sockets, no clock, no objects of the user.
"""

from __future__ import annotations

from zcoll.memory import copy_of

Buffer = bytes | bytearray | memoryview

INLINE_LIMIT = 128 * 1024  # bytes of payload that travel inside the first frame


class Payload:
    """The bytes of one value: a pickle stream, then its out-of-band buffers.

    Attributes:
        parts: The stream and the buffers. A ``bytearray`` belongs to whoever
            receives the payload; anything else is shared and must be copied
            before somebody writes into it, unless all parts are the receiver's.
        stable: Whether nobody can change the parts any more, so that pieces of
            them may be sent without a copy.
        owned: Whether all parts belong to whoever receives the payload.
    """

    __slots__ = ("owned", "parts", "stable")

    def __init__(
        self, parts: list[Buffer], stable: bool = False, owned: bool = False
    ) -> None:
        self.parts = parts
        self.stable = stable
        self.owned = owned

    def __eq__(self, other: object) -> bool:
        """Whether the bytes are the same, and theirs to whom they belong."""
        return isinstance(other, Payload) and (
            (self.parts, self.stable, self.owned)
            == (other.parts, other.stable, other.owned)
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def sizes(self) -> list[int]:
        """The parts' sizes in bytes."""
        return [len(part) for part in self.parts]  # views are of single bytes

    @property
    def nbytes(self) -> int:
        """The size of all parts in bytes."""
        return sum(self.sizes)

    @property
    def inline(self) -> bool:
        """Whether the payload travels inside the first frame."""
        return len(self.parts) == 1 and len(self.parts[0]) <= INLINE_LIMIT

    def snapshot(self) -> None:
        """Copy what the caller could still change: then it is the receiver's own."""
        if not self.stable:
            self.parts = [
                part if isinstance(part, bytes) else copy_of(part)
                for part in self.parts
            ]
            self.stable = self.owned = True

    def shared(self) -> Payload:
        """The same memory for several readers, none of whom owns it."""
        if self.stable and len(self.parts) == 1 and isinstance(self.parts[0], bytes):
            return self
        parts: list[Buffer] = [
            part if isinstance(part, bytes) else memoryview(part).toreadonly()
            for part in self.parts
        ]
        return Payload(parts, stable=True)


EMPTY = Payload([], stable=True)

"""Messages, and how they stand in ZeroMQ frames.

A message is one frame, or two when it carries a chunk of a large payload::

    header | call site | tag | body      data of a chunk

The header has a fixed size and holds every number; the body is what the kind
says: JSON fields, the sizes of a payload's parts, or a small payload itself.
:func:`parse` is strict: any bytes give a :class:`Message` or a
:class:`~zcoll.errors.ProtocolError`, and nothing is allocated by a size that a
peer merely claims.

Everything here is pure: no sockets, no clock, no objects of the user.
"""

from __future__ import annotations

import enum
import json
import struct
from typing import TYPE_CHECKING, Any

from zcoll.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from zcoll.payload import Buffer, Payload

MAGIC = b"zc"
VERSION = 1
MAX_SITE = 512  # bytes of a call site: a path and a name, cut at the front
MAX_TAG = 255  # bytes of a call's tag
CHUNK_SIZE = 1024 * 1024  # bytes of data in one chunk
# Bytes that a socket takes from anybody at most. Strangers can make rank 0 hold one
# such frame for each connection, so it is no larger than chunks need.
MAX_FRAME = CHUNK_SIZE + 64 * 1024
MAX_PARTS = 100_000  # parts of one payload, so that their sizes fit a frame
AUTO_RANK = -1  # whose replica asks rank 0 for a rank; in the body of HELLO only

_HEADER = struct.Struct("!2sBBBBBIQQQHIQQ")
_HEADER_SIZE = _HEADER.size
_COMMON = struct.Struct("!2sBBBBBIQQQ")  # its first fields
_COMMON_SIZE = _COMMON.size
_OWN = struct.Struct("!HIQQ")  # and the rest
_CHUNK = struct.Struct("!IQ")


class OtherVersionError(ProtocolError):
    """A message of another protocol version.

    Attributes:
        version: The sender's.
    """

    def __init__(self, version: int) -> None:
        super().__init__(f"protocol version {version}, here it is {VERSION}")
        self.version = version


class Kind(enum.IntEnum):
    """What a message is for. Those after STACK are numbered: see ``link``."""

    HELLO = 1  # replica: who I am; again after every reconnect
    WELCOME = 2  # rank 0: you are in; numbers received so far
    REJECT = 3  # rank 0: you are not, and why
    WAITING = 4  # rank 0: who is still missing
    BEACON = 5  # replica: still here, and rank 0's answer: so am I
    ACK = 6  # either: nothing but an acknowledgement
    QUERY = 7  # replica: who is missing in this call?
    REPORT = 8  # rank 0: these are
    PING = 9  # anybody with the secret: how is the group?
    PONG = 10  # rank 0: like this
    STACK = 11  # rank 0: where are you?; replica: here
    READY = 12  # rank 0: the group is complete; its table of replicas
    CONTRIBUTE = 13  # replica: my part of a call
    GRANT = 14  # rank 0: send the chunks of your part
    CHUNK = 15  # either: a piece of a large payload
    OUTCOME = 16  # rank 0: the result of a call
    FAILURE = 17  # rank 0: the error of a call
    OVER = 18  # rank 0: the group ends after this call, and why
    ABORT = 19  # replica: end the group, and why
    BYE = 20  # replica: I leave, and why
    LEAVE = 21  # replica: I make no more calls in this group; go on without me
    CLOSE = 22  # replica: I make no more calls in this group
    ACTIVE = 23  # rank 0: who still makes calls in this group
    FETCH = 24  # rank 0: send the reduce function of this call
    FUNCTION = 25  # replica: this is it

    @property
    def numbered(self) -> bool:
        """Whether such messages are kept and replayed after a reconnect."""
        return self >= Kind.READY


class Flag(enum.IntEnum):  # not an IntFlag: each of its operations takes 1 us
    """Bits of the header."""

    CHUNKED = 1  # the body holds the sizes of the parts; chunks follow
    POISONED = 2  # the contribution is an error: JSON fields


_KINDS = {int(kind): kind for kind in Kind}  # a look-up in Kind itself takes longer
_FIRST_NUMBERED = int(Kind.READY)
_UNKNOWN_FLAGS = ~(Flag.CHUNKED | Flag.POISONED)


class Message:
    """One message. Which fields mean something depends on its kind.

    Attributes:
        kind: What it is for.
        operation: The operation's code.
        flags: Bits of :class:`Flag`.
        rank: The sender's rank; in WELCOME, the receiver's.
        root: The call's root.
        session: The group's random number; 0 before it is known.
        group: The group's number.
        seq: The call's number in its group; the first is 1.
        number: The message's place in its direction's stream; 0 is outside it.
        ack: The last number that the sender has received in order.
        site: The user's line that made the call.
        tag: What the user calls it.
        body: What the kind says.
        data: The bytes of a chunk; a frame of their own.
        payload: A whole payload, where the message never leaves the process.
    """

    __slots__ = (
        "ack",
        "body",
        "data",
        "flags",
        "group",
        "kind",
        "number",
        "operation",
        "payload",
        "rank",
        "root",
        "seq",
        "session",
        "site",
        "tag",
    )

    def __init__(  # noqa: PLR0917 - as they stand on the wire
        self,
        kind: Kind,
        operation: int = 0,
        flags: int = 0,
        rank: int = 0,
        root: int = 0,
        session: int = 0,
        group: int = 0,
        seq: int = 0,
        number: int = 0,
        ack: int = 0,
        site: str = "",
        tag: str = "",
        body: Buffer = b"",
        data: Buffer | None = None,
        payload: Payload | None = None,
    ) -> None:
        self.kind = kind
        self.operation = operation
        self.flags = flags
        self.rank = rank
        self.root = root
        self.session = session
        self.group = group
        self.seq = seq
        self.number = number
        self.ack = ack
        self.site = site
        self.tag = tag
        self.body = body
        self.data = data
        self.payload = payload

    def __eq__(self, other: object) -> bool:
        """Whether they are the same on the wire."""
        return isinstance(other, Message) and pack(self) == pack(other)

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        text = f"{self.kind.name} seq={self.seq} number={self.number} ack={self.ack}"
        size = len(self.body) + (0 if self.data is None else len(self.data))
        return f"{text} op={self.operation} {self.site} [{size} bytes]"


def pack(message: Message) -> list[Buffer]:
    """Turn a message into its frames."""
    site = message.site.encode("utf-8", "replace")[-MAX_SITE:] if message.site else b""
    tag = message.tag.encode("utf-8", "replace") if message.tag else b""
    header = _HEADER.pack(
        MAGIC,
        VERSION,
        message.kind,
        message.operation,
        message.flags,
        len(tag),
        message.root,
        message.session,
        message.group,
        message.seq,
        len(site),
        message.rank,
        message.number,
        message.ack,
    )
    head = b"".join((header, site, tag, message.body))
    return [head] if message.data is None else [head, message.data]


def parse(frames: Sequence[Buffer]) -> Message:
    """Turn frames into the message that they hold.

    Raises:
        ProtocolError: They hold none, or one of another protocol version.
    """
    if not 1 <= len(frames) <= 2:
        raise ProtocolError(f"a message has 1 or 2 frames, not {len(frames)}")
    head = frames[0]
    if len(head) < _HEADER_SIZE:
        raise ProtocolError(f"a frame of {len(head)} bytes is too short for a header")
    # fmt: off
    (magic, version, code, operation, flags, tag_size, root, session, group, seq,
     site_size, rank, number, ack) = _HEADER.unpack_from(head)
    # fmt: on
    if magic != MAGIC:
        raise ProtocolError("not a zcoll message")
    if version != VERSION:
        raise OtherVersionError(version)
    kind = _KINDS.get(code)
    if kind is None:
        raise ProtocolError(f"unknown kind {code}")
    place = _HEADER_SIZE + site_size
    end = place + tag_size
    if site_size > MAX_SITE or len(head) < end:
        raise ProtocolError(
            f"a call site of {site_size} and a tag of {tag_size} bytes do not fit"
        )
    if flags and flags & _UNKNOWN_FLAGS:
        raise ProtocolError(f"unknown flags {flags:#x}")
    if (len(frames) == 2) != (kind is Kind.CHUNK):
        raise ProtocolError(f"{kind.name} with {len(frames)} frames")
    if (number == 0) != (code < _FIRST_NUMBERED):
        raise ProtocolError(f"{kind.name} with message number {number}")
    site = str(head[_HEADER_SIZE:place], "utf-8", "replace") if site_size else ""
    tag = str(head[place:end], "utf-8", "replace") if tag_size else ""
    data = frames[1] if kind is Kind.CHUNK else None
    # fmt: off
    return Message(kind, operation, flags, rank, root, session, group, seq, number,
                   ack, site, tag, head[end:], data)
    # fmt: on


class Common:
    """What is the same in all replicas' small messages of one call.

    Such messages are packed, and told apart from others, in few steps.

    Args:
        kind: What they are for.
        operation: The operation's code.
        root: The call's root.
        session: The group's random number.
        group: The group's number.
        seq: The call's number.
        tag: What the user calls it.
    """

    __slots__ = ("_start", "_tag")

    def __init__(
        self,
        kind: Kind,
        operation: int,
        root: int,
        session: int,
        group: int,
        seq: int,
        tag: str = "",
    ) -> None:
        self._tag = tag.encode("utf-8", "replace") if tag else b""
        # fmt: off
        self._start = _COMMON.pack(MAGIC, VERSION, kind, operation, 0, len(self._tag),
                                   root, session, group, seq)
        # fmt: on

    def pack(self, rank: int, number: int, ack: int, site: str, body: Buffer) -> bytes:
        """Make the one frame of a message without flags."""
        where = site.encode("utf-8", "replace")[-MAX_SITE:]
        own = _OWN.pack(len(where), rank, number, ack)
        return b"".join((self._start, own, where, self._tag, body))

    def parse(self, frames: Sequence[Buffer]) -> tuple[int, int, Buffer, Buffer] | None:
        """Read what is a message's own.

        Returns:
            Its number, ack, site (as bytes) and body; None if it is another message.
        """
        if len(frames) != 1:
            return None
        head = frames[0]
        if head[:_COMMON_SIZE] != self._start or len(head) < _HEADER_SIZE:
            return None
        site_size, _, number, ack = _OWN.unpack_from(head, _COMMON_SIZE)
        end = place = _HEADER_SIZE + site_size
        if self._tag:
            end += len(self._tag)
            if head[place:end] != self._tag:
                return None
        if site_size > MAX_SITE or len(head) < end or not number:
            return None
        return number, ack, head[_HEADER_SIZE:place], head[end:]


def pack_fields(fields: Mapping[str, Any]) -> bytes:
    """Turn plain fields into a body. Only JSON types: never a user's value."""
    return json.dumps(fields, separators=(",", ":")).encode()


def parse_fields(body: Buffer) -> dict[str, Any]:
    """Turn a body into the fields of :func:`pack_fields`.

    Raises:
        ProtocolError: The body is no JSON object.
    """
    try:
        fields = json.loads(bytes(body))
    except (ValueError, RecursionError):
        raise ProtocolError("a body that is not JSON") from None
    if not isinstance(fields, dict):
        raise ProtocolError("a body that is not a JSON object")
    return fields


def pack_sizes(sizes: Sequence[int]) -> bytes:
    """Turn the sizes of a chunked payload's parts into a body."""
    return struct.pack(f"!{len(sizes)}Q", *sizes)


def parse_sizes(body: Buffer) -> list[int]:
    """Turn a body into the sizes of a chunked payload's parts, in bytes.

    Raises:
        ProtocolError: The body holds no such list.
    """
    count, rest = divmod(len(body), 8)
    if rest or count > MAX_PARTS:
        raise ProtocolError(f"a list of sizes of {len(body)} bytes")
    sizes = list(struct.unpack(f"!{count}Q", body))
    if not any(sizes):
        raise ProtocolError("a list of sizes without a byte to come")
    return sizes


def pack_place(part: int, offset: int) -> bytes:
    """Turn a chunk's place in its payload into a body."""
    return _CHUNK.pack(part, offset)


def parse_place(body: Buffer) -> tuple[int, int]:
    """Turn a body into a chunk's part and its offset there, in bytes.

    Raises:
        ProtocolError: The body holds no place.
    """
    if len(body) != _CHUNK.size:
        raise ProtocolError(f"a chunk's place of {len(body)} bytes")
    part, offset = _CHUNK.unpack(body)
    return part, offset

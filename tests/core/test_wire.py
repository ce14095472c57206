import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zcoll import wire
from zcoll.errors import ProtocolError
from zcoll.payload import INLINE_LIMIT, Payload
from zcoll.wire import (
    Common,
    Flag,
    Kind,
    Message,
    OtherVersionError,
    pack,
    pack_fields,
    pack_place,
    pack_sizes,
    parse,
    parse_fields,
    parse_place,
    parse_sizes,
)

HEADER = 57  # bytes
U8, U16 = st.integers(0, 2**8 - 1), st.integers(0, 2**16 - 1)
U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    kind = draw(st.sampled_from(Kind))
    return Message(
        kind,
        operation=draw(U8),
        flags=draw(st.integers(0, 3)),
        rank=draw(U32),
        root=draw(U32),
        session=draw(U64),
        group=draw(U64),
        seq=draw(U64),
        number=draw(st.integers(1, 2**64 - 1)) if kind.numbered else 0,
        ack=draw(U64),
        site=draw(st.text(st.characters(codec="ascii"), max_size=wire.MAX_SITE)),
        tag=draw(st.text(st.characters(codec="ascii"), max_size=wire.MAX_TAG)),
        body=draw(st.binary(max_size=50)),
        data=draw(st.binary(max_size=50)) if kind is Kind.CHUNK else None,
    )


def head(**changed: int) -> bytes:
    """A BEACON's header, with some fields as they should not be."""
    magic = struct.pack("!H", changed.get("magic", 0x7A63))
    fields = {"version": 1, "kind": Kind.BEACON, "operation": 0, "flags": 0}
    small = bytes(changed.get(name, value) for name, value in fields.items())
    call = struct.pack("!BIQQQ", changed.get("tag", 0), 0, 0, 0, 0)
    own = struct.pack("!HIQQ", changed.get("site", 0), 0, changed.get("number", 0), 0)
    return magic + small + call + own


@given(messages())
def test_a_message_comes_back_from_its_frames(message: Message) -> None:
    assert parse(pack(message)) == message


def test_every_message_is_one_frame_but_a_chunk() -> None:
    chunk = Message(Kind.CHUNK, number=1, body=b"place", data=b"data")
    assert pack(chunk)[1] is chunk.data
    assert [len(pack(Message(Kind.ACK))), len(pack(chunk))] == [1, 2]
    assert len(pack(Message(Kind.ACK))[0]) == HEADER


def test_the_header_is_pinned() -> None:
    message = Message(
        Kind.CONTRIBUTE,
        operation=2,
        flags=1,
        rank=3,
        root=4,
        session=5,
        group=6,
        seq=7,
        number=8,
        ack=9,
        site="s",
        tag="t",
        body=b"b",
    )
    numbers = "0000000000000005 0000000000000006 0000000000000007"
    expected = f"7a63 01 0d 02 01 01 00000004 {numbers}"
    expected += " 0001 00000003 0000000000000008 0000000000000009 73 74 62"
    assert pack(message) == [bytes.fromhex(expected)]


@pytest.mark.parametrize(
    ("site", "arrives"),
    [
        ("", ""),
        ("train.py:3 step", "train.py:3 step"),
        ("x" * 600 + "train.py:3", "x" * 502 + "train.py:3"),
        ("caf\u00e9.py:1", "caf\u00e9.py:1"),
        ("\ud800.py:1", "?.py:1"),
        ("\u00e9" * 256 + "y", "\ufffd" + "\u00e9" * 255 + "y"),
    ],
)
def test_a_call_site_keeps_its_end(site: str, arrives: str) -> None:
    assert parse(pack(Message(Kind.ACK, site=site))).site == arrives


@given(st.lists(st.binary(max_size=200), max_size=3))
def test_any_bytes_are_a_message_or_a_protocol_error(frames: list[bytes]) -> None:
    with contextlib.suppress(ProtocolError):
        assert isinstance(parse(frames), Message)


@given(messages(), st.data())
def test_a_spoilt_message_is_a_message_or_a_protocol_error(
    message: Message, data: st.DataObject
) -> None:
    frame = bytearray(pack(message)[0])
    place = data.draw(st.integers(0, len(frame) - 1))
    frame[place] = data.draw(U8)
    cut = data.draw(st.integers(0, len(frame)))
    for spoilt in (frame, frame[:cut]):
        with contextlib.suppress(ProtocolError):
            assert isinstance(parse([spoilt, *pack(message)[1:]]), Message)


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([], "1 or 2 frames, not 0"),
        ([head(), b"", b""], "1 or 2 frames, not 3"),
        ([head()[:-1]], "a frame of 56 bytes is too short"),
        ([head(magic=0)], "not a zcoll message"),
        ([head(version=2)], "protocol version 2, here it is 1"),
        ([head(kind=0)], "unknown kind 0"),
        ([head(kind=99)], "unknown kind 99"),
        ([head(site=1)], "a call site of 1 and a tag of 0 bytes do not fit"),
        ([head(tag=1)], "a call site of 0 and a tag of 1 bytes do not fit"),
        ([head(site=513) + bytes(600)], "a call site of 513"),
        ([head(flags=4)], "unknown flags 0x4"),
        ([head(), b"data"], "BEACON with 2 frames"),
        ([head(kind=Kind.CHUNK, number=1)], "CHUNK with 1 frames"),
        ([head(number=1)], "BEACON with message number 1"),
        ([head(kind=Kind.OVER)], "OVER with message number 0"),
    ],
)
def test_what_is_wrong_is_said(frames: list[bytes], why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        parse(frames)


def test_another_version_is_told_apart() -> None:
    with pytest.raises(OtherVersionError) as caught:
        parse([head(version=9)])
    assert caught.value.version == 9


def test_the_log_does_not_show_payloads() -> None:
    message = Message(Kind.CHUNK, seq=3, number=1, body=b"secret", data=b"secret")
    assert str(message) == "CHUNK seq=3 number=1 ack=0 op=0  [12 bytes]"


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.none()))
def test_fields_come_back(fields: dict[str, object]) -> None:
    assert parse_fields(memoryview(pack_fields(fields))) == fields


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"3", b"\xff", b"[" * 100_000, b'{"a":' + b"1" * 9999]
)
def test_a_body_that_is_no_object_is_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError, match="a body that is not"):
        parse_fields(body)


@given(st.binary(max_size=100))
def test_any_body_is_read_or_refused(body: bytes) -> None:
    for read in (parse_fields, parse_sizes, parse_place):
        with contextlib.suppress(ProtocolError):
            read(body)


@given(st.lists(U64, min_size=1).filter(any))
def test_sizes_come_back(sizes: list[int]) -> None:
    assert parse_sizes(pack_sizes(sizes)) == sizes


@pytest.mark.parametrize(
    "body",
    [b"", b"1234567", bytes(9), bytes(8), bytes(16), b"1" * 8 * (wire.MAX_PARTS + 1)],
)
def test_sizes_that_nobody_sends_are_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError, match="a list of sizes"):
        parse_sizes(body)


@given(U32, U64)
def test_a_place_comes_back(part: int, offset: int) -> None:
    assert parse_place(pack_place(part, offset)) == (part, offset)


@pytest.mark.parametrize(
    ("parts", "inline"),
    [
        ([b"x"], True),
        ([b"x" * INLINE_LIMIT], True),
        ([b"x" * (INLINE_LIMIT + 1)], False),
        ([b"x", b"y"], False),
        ([], False),
    ],
)
def test_a_small_payload_of_one_part_is_inline(
    parts: list[bytes], inline: bool
) -> None:
    assert Payload(list(parts)).inline is inline


def test_a_snapshot_copies_what_could_change() -> None:
    stream, buffer = b"stream", bytearray(b"buffer")
    payload = Payload([stream, memoryview(buffer)])
    payload.snapshot()
    buffer[:] = b"xxxxxx"
    assert payload.stable
    assert payload.parts == [stream, b"buffer"]
    assert payload.parts[0] is stream
    parts = payload.parts
    payload.snapshot()
    assert payload.parts is parts


def test_what_is_shared_cannot_be_written() -> None:
    shared = Payload([b"stream", bytearray(b"buffer")]).shared()
    assert shared.stable
    assert [memoryview(part).readonly for part in shared.parts] == [True, True]
    assert (shared.sizes, shared.nbytes) == ([6, 6], 12)


def test_flags_and_numbered_kinds() -> None:
    assert [kind.name for kind in Kind if kind.numbered] == [
        "READY",
        "CONTRIBUTE",
        "GRANT",
        "CHUNK",
        "OUTCOME",
        "FAILURE",
        "OVER",
        "ABORT",
        "BYE",
        "LEAVE",
        "CLOSE",
        "ACTIVE",
        "FETCH",
        "FUNCTION",
    ]
    assert Flag.CHUNKED | Flag.POISONED == 3


@given(
    messages().filter(lambda message: message.kind is not Kind.CHUNK),
    st.sampled_from(["", "t", "tag"]),
)
def test_the_short_way_reads_and_writes_the_same(message: Message, tag: str) -> None:
    message.tag, message.flags = tag, 0
    message.number = message.number or 1
    call = message.root, message.session, message.group, message.seq
    common = Common(message.kind, message.operation, *call, tag)
    own = message.rank, message.number, message.ack, message.site, message.body
    frames = pack(message)
    assert [common.pack(*own)] == frames
    site = message.site.encode()
    assert common.parse(frames) == (message.number, message.ack, site, message.body)


@given(st.binary(max_size=150), st.sampled_from(["", "t"]))
def test_any_bytes_are_read_or_not(junk: bytes, tag: str) -> None:
    common = Common(Kind.OUTCOME, 1, 0, 5, 0, 7, tag)
    assert common.parse([junk]) is None
    whole = common.pack(1, 2, 3, "s", b"body")
    for size in range(len(whole) - len(b"body")):
        assert common.parse([whole[:size]]) is None
    assert common.parse([whole, b""]) is None
    assert common.parse([]) is None
    assert common.parse([common.pack(1, 0, 3, "s", b"")]) is None, "no number"

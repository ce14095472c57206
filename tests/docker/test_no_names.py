"""The name server of a private engine: no name exists."""

from __future__ import annotations

import struct

import pytest
from engine.no_names import answer

NAME = b"\x05rank0\x07example\x00"
QUERY = (
    struct.pack("!6H", 0xBEEF, 0x0120, 1, 0, 0, 1) + NAME + struct.pack("!2H", 28, 1)
)
EDNS = b"\x00\x00\x29\x04\xd0" + bytes(6)


@pytest.mark.parametrize("more", [b"", EDNS])
def test_every_question_is_answered_by_there_is_no_such_name(more: bytes) -> None:
    reply = answer(QUERY + more)
    assert reply is not None
    number, flags, *counts = struct.unpack("!6H", reply[:12])
    assert number == 0xBEEF
    assert flags & 0x8000, "a response"
    assert flags & 0x000F == 3, "NXDOMAIN"
    assert counts == [1, 0, 0, 0]
    assert reply[12:] == NAME + struct.pack("!2H", 28, 1)


@pytest.mark.parametrize("length", range(len(QUERY)))
def test_what_is_no_question_is_not_answered(length: int) -> None:
    assert answer(QUERY[:length]) is None

"""How rank 0 and a replica agree on a lane, over their ZeroMQ connection.

The connection is authenticated, so what comes by it can be believed. A replica that
has been admitted makes the memory and says OFFER; rank 0 opens it and says TAKE; the
replica says BEGIN, and so does rank 0. Or one of them says NO, and why. As these words
travel with the messages, those behind a BEGIN can come through the lane without
overtaking any that are before it.
"""

from __future__ import annotations

import enum
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from zcoll.transport.lane.segment import Ticket, UnavailableError

if TYPE_CHECKING:
    from zcoll.payload import Buffer

_MAGIC = b"zl"  # where a message of the protocol has "zc"
VERSION = 2  # of these words and of the layout of the memory


class Word(enum.IntEnum):
    """What is said."""

    OFFER = 1  # replica: my memory, and my bell
    TAKE = 2  # rank 0: I have opened them; my bell, and my regions
    BEGIN = 3  # either: my messages that follow come through the lane; replica: I can
    # read the regions, or not
    NO = 4  # either: there is no lane, and why
    PROBE = 5  # rank 0: nothing; only to find out whether the connection stands


def write(word: Word, **fields: Any) -> list[Buffer]:
    """The frames of a word; tickets and plain values are its fields."""
    plain = {
        name: asdict(value) if isinstance(value, Ticket) else value
        for name, value in fields.items()
    }
    return [_MAGIC + bytes((VERSION, word)) + json.dumps(plain).encode()]


def is_talk(frames: list[Buffer]) -> bool:
    """Whether a message is about the lane, and none of the protocol's."""
    return len(frames) == 1 and bytes(frames[0][:2]) == _MAGIC


def read(frames: list[Buffer]) -> tuple[Word, dict[str, Any]]:
    """Read a word and its fields.

    Raises:
        UnavailableError: It is of another version, or makes no sense.
    """
    data = bytes(frames[0])
    if len(data) < 4 or data[2] != VERSION:
        raise UnavailableError("another version of zcoll")
    try:
        word, fields = Word(data[3]), json.loads(data[4:])
    except (ValueError, RecursionError):
        raise UnavailableError("the offer makes no sense") from None
    if not isinstance(fields, dict):
        raise UnavailableError("the offer makes no sense")
    return word, fields

"""Pickles that show whether somebody has unpickled them."""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING, Any

from security.insider import hello

from zcoll import operations
from zcoll.payload import Buffer
from zcoll.wire import Kind, Message, pack

if TYPE_CHECKING:
    from pathlib import Path


class Canary:
    """Makes a directory where, and whenever, it is unpickled.

    Args:
        path: The directory; each canary of a test has its own.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._path),)

    @property
    def stream(self) -> bytes:
        """The pickle."""
        return pickle.dumps(self)

    @property
    def has_fired(self) -> bool:
        """Whether it was unpickled."""
        return self._path.exists()


def contribution(stream: bytes, seq: int = 1) -> Message:
    """An operand of an allreduce that carries a pickle."""
    code = operations.ALLREDUCE.code
    return Message(Kind.CONTRIBUTE, operation=code, seq=seq, body=stream)


def battery(stream: bytes) -> list[list[Buffer]]:
    """Everything that might get a pickle read: as zcoll says it, and as others do."""
    operand, outcome = contribution(stream), contribution(stream)
    outcome.kind = Kind.OUTCOME
    operand.number = outcome.number = 1
    chunk = Message(Kind.CHUNK, seq=1, number=1, body=bytes(12), data=stream)
    return [
        [stream],
        [b"", stream],
        [b"zcoll", b"", stream],
        pack(hello()),
        pack(operand),
        pack(outcome),
        pack(chunk),
        pack(Message(Kind.HELLO, body=stream)),
        pack(Message(Kind.PING, body=stream)),
        pack(Message(Kind.STACK, body=stream)),
    ]

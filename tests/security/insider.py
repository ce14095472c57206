"""A peer that plays a replica's part by hand, with or without the group's secret."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

from group import LIMIT, Replica

from zcoll.payload import Buffer
from zcoll.protocol.events import Identity
from zcoll.protocol.identities import write_identity
from zcoll.security import Secret
from zcoll.transport.address import connect_place
from zcoll.transport.sockets import Dealer, Heartbeat
from zcoll.wire import Kind, Message, pack, pack_fields, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

HOME = "127.0.0.1"


def hello(rank: int = 1, size: int = 2, **changes: Any) -> Message:
    """A HELLO; fields of it may be changed, or left out (None)."""
    identity = Identity(rank, size, "host", os.getpid(), 0, "0", "3")
    fields = {**write_identity(identity), "job": "", "session": 0, **changes}
    kept = {name: value for name, value in fields.items() if value is not None}
    return Message(Kind.HELLO, body=pack_fields(kept))


class Insider:
    """Somebody at rank 0's door who says whatever a test wants.

    Args:
        port: The group's port.
        secret: The group's secret, or None for a group over ipc.

    Attributes:
        session: The group's, once it is known.
        sent: How many numbered messages it has sent.
        asked: How many questions it has put.
    """

    def __init__(self, port: int, secret: str | None) -> None:
        place = connect_place(HOME, port, secret=secret is not None)
        keys = None if secret is None else Secret.of(secret).keys()
        self._dealer = Dealer(place, keys, Heartbeat())
        self.session = 0
        self.sent = 0
        self.asked = 0

    def send_frames(self, frames: list[Buffer], limit: float = LIMIT) -> None:
        """Send frames as they are, once a connection stands."""
        deadline = time.monotonic() + limit
        while not self._dealer.send(frames):
            assert time.monotonic() < deadline, "no connection stands"
            self._dealer.events()
            self._dealer.wait(0.01)

    def send(self, message: Message) -> None:
        """Send a message as a replica would, with its number and session."""
        message.session = self.session
        if message.kind.numbered:
            self.sent += 1
            message.number = self.sent
        self.send_frames(pack(message))

    def receive(self) -> Message | None:
        """Take what has come, if something has."""
        frames = self._dealer.receive()
        return None if frames is None else parse(frames)

    def expect(self, kind: Kind, limit: float = LIMIT) -> Message:
        """Wait for a message of this kind, and pass over others."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            message = self.receive()
            if message is None:
                self._dealer.events()
                self._dealer.wait(0.05)
            elif message.kind is kind:
                return message
        raise AssertionError(f"no {kind.name} has come")

    def join(self, rank: int = 1, size: int = 2) -> None:
        """Be admitted."""
        self.send(hello(rank, size, incarnation=id(self)))
        self.session = self.expect(Kind.WELCOME).session

    def close(self) -> None:
        """Go away without a word."""
        self._dealer.close()


@contextlib.contextmanager
def insider(port: int, secret: str | None) -> Iterator[Insider]:
    """Give an insider that goes away at the end."""
    one = Insider(port, secret)
    try:
        yield one
    finally:
        one.close()


def finish(*replicas: Replica) -> None:
    """The group comes together, and tears itself down."""
    for replica in replicas:
        replica.joined.result(LIMIT)
        replica.leave()
    for replica in replicas:
        replica.left.result(LIMIT)

"""A lane beside the socket to the same peer: which of the two a message takes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from zcoll.transport.lane.ring import FullError
from zcoll.wire import Kind, pack

if TYPE_CHECKING:
    from collections.abc import Callable

    from zcoll.payload import Buffer
    from zcoll.transport.lane.lane import Lane
    from zcoll.wire import Message

_log = logging.getLogger("zcoll.lane")


def warn_of_no_room() -> None:
    """Tell people that messages have to go by the socket."""
    _log.warning("no room for shared memory: going on by ZeroMQ")


class End:
    """This side's end of a lane.

    Args:
        lane: The lane; closed with the end.
        by_socket: Sends frames by the socket; False if there is no connection.
        warn: Tells people that there is no room.

    Attributes:
        sends: Whether this side's messages go through the lane.
        begun: Whether the other side's come through it.
    """

    def __init__(
        self,
        lane: Lane,
        by_socket: Callable[[list[Buffer]], bool],
        warn: Callable[[], None],
    ) -> None:
        self.sends = False
        self.begun = False
        self._lane = lane
        self._by_socket = by_socket
        self._warn = warn

    def send(self, message: Message) -> bool:
        """Send a message; False if there is no connection.

        Those of the reliable stream go through the lane, all of them, as they must
        stay in order; and acknowledgements, while they need not wait for room. All
        others tell of the connection, and so use it.

        Raises:
            ProtocolError: The lane's memory makes no sense.
        """
        frames, lane = pack(message), self._lane
        if message.number or (message.kind is Kind.ACK and not lane.backlog):
            return self.send_numbered(frames)
        return self._by_socket(frames)

    def send_numbered(self, frames: list[Buffer]) -> bool:
        """Send a message of the reliable stream; False if there is no connection.

        Raises:
            ProtocolError: The lane's memory makes no sense.
        """
        if not self.sends:
            return self._by_socket(frames)
        try:
            self._lane.send(frames)
        except FullError:
            self._give_up()
        return True

    def flush(self) -> None:
        """Write what waits for room, if there is some.

        Raises:
            ProtocolError: The lane's memory makes no sense.
        """
        if self._lane.backlog:
            try:
                self._lane.flush()
            except FullError:
                self._give_up()

    def _give_up(self) -> None:
        """There is no memory for a message: from here on all go by the socket."""
        self._warn()
        self.sends = False
        for frames in self._lane.take_back():
            self._by_socket(frames)

    def take(self) -> list[Buffer] | None:
        """Take the next message from the lane, or None. Data is lent until the next.

        Raises:
            ProtocolError: The lane's memory makes no sense.
        """
        return self._lane.take() if self.begun else None

    @property
    def unread(self) -> int:
        """Messages that can be taken now."""
        return self._lane.unread if self.begun else 0

    @property
    def waiting(self) -> bool:
        """Whether there is something to take, or to flush."""
        return self._lane.waiting and (self.begun or bool(self._lane.backlog))

    @property
    def busy(self) -> bool:
        """Whether messages wait for room."""
        return bool(self._lane.backlog)

    @property
    def rings(self) -> bool:
        """Whether something has been sent since the last :meth:`ring`."""
        return self._lane.rings

    def ring(self) -> None:
        """Wake the other side if it sleeps; behind a fence."""
        self._lane.ring()

    def lie_down(self) -> None:
        """Say that this side sleeps; then there must be a fence, and a last look."""
        self._lane.lie_down()

    def get_up(self) -> None:
        """Say that this side is awake."""
        self._lane.get_up()

    def tick(self, now: float) -> None:
        """Time has passed.

        Raises:
            ProtocolError: The lane's memory makes no sense.
        """
        self._lane.tick(now)

    def use_no_regions(self) -> None:
        """The other side cannot read what is written for all."""
        self._lane.use_no_regions()

    def close(self) -> None:
        """Let go of the lane."""
        self._lane.close()

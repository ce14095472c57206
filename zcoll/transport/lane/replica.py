"""A replica's lane to rank 0, beside its socket."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

from zcoll.transport.lane.bell import Ringer, bell_ticket
from zcoll.transport.lane.end import End, warn_of_no_room
from zcoll.transport.lane.lane import SIZE, Lane, fence
from zcoll.transport.lane.segment import Segment, Ticket, UnavailableError
from zcoll.transport.lane.talk import Word, is_talk, read, write
from zcoll.wire import pack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zcoll.payload import Buffer
    from zcoll.transport.sockets import Dealer
    from zcoll.wire import Message

_log = logging.getLogger("zcoll.lane")


class ReplicaLane:
    """Sends and receives as the socket does, by shared memory where that is possible.

    Args:
        dealer: The socket.
        bell: What this process polls, as a descriptor.
        wanted: Whether to try at all.
    """

    def __init__(self, dealer: Dealer, bell: int, *, wanted: bool) -> None:
        self._dealer = dealer
        self._bell = bell
        self._wanted = wanted
        self._offered: Segment | None = None
        self._end: End | None = None
        self._warn = functools.cache(warn_of_no_room)  # once for all connections

    # --- the agreement ----------------------------------------------------

    def offer(self) -> None:
        """Rank 0 has admitted this replica: the stream starts anew, by the socket."""
        self.drop()
        try:
            if not self._wanted:
                raise UnavailableError("ZCOLL_LANE=zmq")
            self._offered = Segment.create(SIZE)
            memory, bell = self._offered.ticket, bell_ticket(self._bell)
        except UnavailableError as error:
            self._withdraw(error)
        else:
            self._dealer.send(write(Word.OFFER, memory=memory, bell=bell))

    def _withdraw(self, error: UnavailableError) -> None:
        self._forget_offer()
        _log.debug("messages go by ZeroMQ: %s", error)
        self._dealer.send(write(Word.NO, why=str(error)))

    def _forget_offer(self) -> None:
        if self._offered is not None:
            self._offered.close()
            self._offered = None

    def _listen(self, frames: list[Buffer]) -> None:
        """Take in what rank 0 says about the lane."""
        try:
            word, fields = read(frames)
            if word is Word.BEGIN and self._end is not None:
                self._end.begun = True
            offered = self._offered
            if offered is None or fields.get("token") != offered.ticket.token:
                return  # it answers the offer of an earlier connection
            if word is Word.NO:
                _log.debug("messages go by ZeroMQ: %s", fields.get("why"))
                self._forget_offer()
            elif word is Word.TAKE:
                self._begin(offered, fields)
        except UnavailableError as error:
            if self._end is None:
                self._withdraw(error)

    def _begin(self, offered: Segment, fields: dict[str, Any]) -> None:
        ringer = Ringer(Ticket.read(fields.get("bell")))
        regions = _open_regions(fields)
        try:
            lane = Lane(offered, ringer, made=True, read=regions)
        except UnavailableError:
            ringer.close()
            if regions is not None:
                regions.close()
            raise
        self._offered = None
        self._end = End(lane, self._dealer.send, self._warn)
        begin = write(Word.BEGIN, regions=regions is not None)
        self._end.sends = self._dealer.send(begin)
        _log.debug("messages go through shared memory")

    def drop(self) -> None:
        """Let go of the lane: the stream starts anew, by the socket."""
        self._forget_offer()
        if self._end is not None:
            self._end.close()
            self._end = None

    # --- messages ---------------------------------------------------------

    def send(self, message: Message) -> bool:
        """Send to rank 0; False if there is no connection.

        Raises:
            ProtocolError: The lane's memory makes no sense.
        """
        if self._end is None:
            return self._dealer.send(pack(message))
        return self._end.send(message)

    def send_numbered(self, frames: list[Buffer]) -> bool:
        """Send a message of the reliable stream; False if there is no connection.

        Raises:
            ProtocolError: The lane's memory makes no sense.
        """
        if self._end is None:
            return self._dealer.send(frames)
        return self._end.send_numbered(frames)

    def receive(self, most: int, *, socket: bool) -> Iterator[list[Buffer]]:
        """Take messages. Data is lent until the next one is taken.

        Args:
            most: Messages of the socket, and of the lane, at most.
            socket: Whether the socket is ready.

        Raises:
            ProtocolError: The lane's memory makes no sense.
        """
        yield from self._take(most)
        while socket and most and (frames := self._dealer.receive()) is not None:
            most -= 1
            if is_talk(frames):
                self._listen(frames)
            else:
                yield from self._take(self.unread)  # rank 0 wrote them before it
                yield frames
            socket = most > 0 and self._dealer.holds_more()

    def _take(self, most: int) -> Iterator[list[Buffer]]:
        end = self._end
        while most and end is not None and end is self._end:
            frames = end.take()
            if frames is None:
                return
            most -= 1
            yield frames

    def flush(self) -> None:
        """Write what waits for room.

        Raises:
            ProtocolError: The lane's memory makes no sense.
        """
        if self._end is not None:
            self._end.flush()

    def tick(self, now: float) -> None:
        """Time has passed: give back memory that is not needed any more.

        Raises:
            ProtocolError: The lane's memory makes no sense.
        """
        if self._end is not None:
            self._end.tick(now)

    @property
    def unread(self) -> int:
        """Messages that are in the lane."""
        return 0 if self._end is None else self._end.unread

    # --- waiting ----------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether there is something to look at."""
        return self._end is not None

    @property
    def waiting(self) -> bool:
        """Whether there is something to do, besides what the socket has."""
        return self._end is not None and self._end.waiting

    @property
    def busy(self) -> bool:
        """Whether messages wait for room."""
        return self._end is not None and self._end.busy

    def ring(self) -> None:
        """Wake rank 0, if it sleeps and has been sent something."""
        if self._end is not None and self._end.rings:
            fence()
            self._end.ring()

    def lie_down(self) -> None:
        """Say that this side sleeps; then there must be a fence, and a last look."""
        if self._end is not None:
            self._end.lie_down()

    def get_up(self) -> None:
        """Say that this side is awake."""
        if self._end is not None:
            self._end.get_up()


def _open_regions(fields: dict[str, Any]) -> Segment | None:
    """Rank 0's regions, claimed; None if they cannot be read here."""
    claim = fields.get("claim")
    try:
        segment = Segment.open(Ticket.read(fields.get("regions")), writable=False)
    except UnavailableError as error:
        _log.debug("outcomes come for each replica: %s", error)
        return None
    try:
        segment.claim(claim if type(claim) is int else 0)
    except UnavailableError as error:
        _log.debug("outcomes come for each replica: %s", error)
        segment.close()
        return None
    return segment

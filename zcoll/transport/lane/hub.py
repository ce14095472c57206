"""Rank 0's lanes to the replicas of its host, beside its socket."""

from __future__ import annotations

import contextlib
import functools
import logging
from typing import TYPE_CHECKING, Any

from zcoll.errors import ProtocolError
from zcoll.transport.lane.bell import Ringer, bell_ticket
from zcoll.transport.lane.end import End, warn_of_no_room
from zcoll.transport.lane.lane import SIZE, Lane, fence
from zcoll.transport.lane.regions import Regions
from zcoll.transport.lane.segment import Segment, Ticket, UnavailableError
from zcoll.transport.lane.talk import Word, is_talk, read, write
from zcoll.wire import pack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from collections.abc import Set as AbstractSet

    from zcoll.payload import Buffer
    from zcoll.transport.sockets import Router
    from zcoll.wire import Message

_log = logging.getLogger("zcoll.lane")


class HubLanes:
    """Sends and receives as the socket does, by shared memory where that is possible.

    Args:
        router: The socket.
        bell: What this process polls, as a descriptor.
        admitted: Whether a peer is a replica of the group.
        wanted: Whether to try at all.

    Attributes:
        ways: What the messages to each peer go by, and why, for people.
    """

    def __init__(
        self,
        router: Router,
        bell: int,
        admitted: Callable[[bytes], bool],
        *,
        wanted: bool,
    ) -> None:
        self.ways: dict[bytes, str] = {}
        self._router = router
        self._bell = bell
        self._admitted = admitted
        self._wanted = wanted
        self._ends: dict[bytes, End] = {}
        self._warn = functools.cache(warn_of_no_room)  # once for all lanes
        self._regions: Regions | None = None  # once there is a lane
        self._broken: list[tuple[bytes, ProtocolError]] = []

    # --- the agreement ----------------------------------------------------

    def _listen(self, peer: bytes, frames: list[Buffer]) -> None:
        """Take in what a peer says about its lane."""
        if not self._admitted(peer):
            return
        token = None
        try:
            word, fields = read(frames)
            if word is Word.NO:
                raise UnavailableError(str(fields.get("why")))
            if word is Word.OFFER:
                self.drop(peer)
                memory = Ticket.read(fields.get("memory"))
                token = memory.token
                self._take(peer, memory, Ticket.read(fields.get("bell")))
            elif word is Word.BEGIN and peer in self._ends:
                self._begin(peer, self._ends[peer], fields)
        except UnavailableError as error:
            self.drop(peer)
            self.ways[peer] = f"ZeroMQ ({error})"
            _log.debug("messages of a replica go by ZeroMQ: %s", error)
            self._router.send(peer, write(Word.NO, token=token, why=str(error)))

    def _take(self, peer: bytes, memory: Ticket, bell: Ticket) -> None:
        """Accept an offer.

        Raises:
            UnavailableError: It cannot be.
        """
        if not self._wanted:
            raise UnavailableError("ZCOLL_LANE=zmq at rank 0")
        if memory.size != SIZE:
            raise UnavailableError("another version of zcoll")
        own, regions = bell_ticket(self._bell), self._make_regions()
        with contextlib.ExitStack() as stack:
            segment = stack.enter_context(contextlib.closing(Segment.open(memory)))
            ringer = stack.enter_context(contextlib.closing(Ringer(bell)))
            lane = Lane(segment, ringer, made=False, regions=regions)
            stack.pop_all()
        by_socket = functools.partial(self._router.send, peer)
        self._ends[peer] = End(lane, by_socket, self._warn)
        fields = {"token": memory.token, "bell": own, "claim": lane.claim}
        shared = None if regions is None else regions.ticket
        self._router.send(peer, write(Word.TAKE, **fields, regions=shared))

    def _make_regions(self) -> Regions | None:
        """The regions of this process, or None if there cannot be any."""
        if self._regions is None:
            try:
                self._regions = Regions()
            except UnavailableError as error:
                _log.debug("outcomes go to each replica: %s", error)
        return self._regions

    def _begin(self, peer: bytes, end: End, fields: dict[str, Any]) -> None:
        if not fields.get("regions"):
            end.use_no_regions()
        end.begun = True
        end.sends = self._router.send(peer, write(Word.BEGIN))
        self.ways[peer] = "shared memory"
        _log.debug("messages of a replica go through shared memory")

    def drop(self, peer: bytes) -> None:
        """Let go of a peer's lane: the stream to it starts anew, by the socket."""
        end = self._ends.pop(peer, None)
        if end is not None:
            end.close()

    def retain(self, peers: AbstractSet[bytes]) -> None:
        """Let go of the lanes, and of what is known, of all other peers."""
        for peer in self.ways.keys() - peers:
            del self.ways[peer]
        for peer in self._ends.keys() - peers:
            self.drop(peer)

    def unreachable(self) -> list[bytes]:
        """The peers with a lane whose connections turn out to be gone."""
        probe = write(Word.PROBE)
        return [peer for peer in self._ends if not self._router.send(peer, probe)]

    # --- messages ---------------------------------------------------------

    def send(self, peer: bytes, message: Message) -> bool:
        """Send to a peer; False if there is no way to it."""
        end = self._ends.get(peer)
        if end is None:
            return self._router.send(peer, pack(message))
        try:
            return end.send(message)
        except ProtocolError as error:
            self._break(peer, error)
            return True  # the peer is given up anyway, and not for its connection

    def send_numbered(self, peer: bytes, frames: list[Buffer]) -> bool:
        """Send a message of the reliable stream; False if there is no way to a peer."""
        end = self._ends.get(peer)
        if end is None:
            return self._router.send(peer, frames)
        try:
            return end.send_numbered(frames)
        except ProtocolError as error:
            self._break(peer, error)
            return True

    def receive(
        self, most: int, *, socket: bool, everything: bool
    ) -> Iterator[tuple[bytes, list[Buffer]]]:
        """Take messages, with their peers. Data is lent until the next is taken.

        Args:
            most: Messages of the socket, and of each lane, at most.
            socket: Whether the socket is ready.
            everything: Take all that is in the lanes: its sender may have died.
        """
        for peer, end in list(self._ends.items()):
            if end.unread:
                left = end.unread if everything else min(end.unread, most)
                yield from self._take_from(peer, end, left)
        while socket and most and (received := self._router.receive()) is not None:
            most -= 1
            peer, frames = received
            if is_talk(frames):
                self._listen(peer, frames)
            else:
                ahead = self._ends.get(peer)
                if ahead is not None:  # what the replica wrote before it
                    yield from self._take_from(peer, ahead, ahead.unread)
                yield peer, frames
            socket = most > 0 and self._router.holds_more()

    def _take_from(
        self, peer: bytes, end: End, most: int
    ) -> Iterator[tuple[bytes, list[Buffer]]]:
        while most and self._ends.get(peer) is end:
            try:
                frames = end.take()
            except ProtocolError as error:
                self._break(peer, error)
                return
            if frames is None:
                return
            most -= 1
            yield peer, frames

    def _break(self, peer: bytes, error: ProtocolError) -> None:
        """A lane's memory, which its replica can write to, makes no sense."""
        self.drop(peer)
        self._broken.append((peer, error))

    def take_broken(self) -> list[tuple[bytes, ProtocolError]]:
        """The peers whose lanes make no sense, and why: they must be given up."""
        broken, self._broken = self._broken, []
        return broken

    def flush(self) -> None:
        """Write what waits for room."""
        self._for_each(lambda end: end.flush())

    def tick(self, now: float) -> None:
        """Time has passed: give back memory that is not needed any more."""
        self._for_each(lambda end: end.tick(now))
        for peer, end in self._ends.items():
            if end.begun and not end.sends:
                self.ways[peer] = "ZeroMQ (no more room for shared memory)"
        if self._regions is not None:
            self._regions.tick(now)

    def _for_each(self, act: Callable[[End], None]) -> None:
        for peer, end in list(self._ends.items()):
            try:
                act(end)
            except ProtocolError as error:
                self._break(peer, error)

    # --- waiting ----------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether there is something to look at."""
        return bool(self._ends)

    @property
    def waiting(self) -> bool:
        """Whether there is something to do, besides what the socket has."""
        return any(end.waiting for end in self._ends.values())

    @property
    def busy(self) -> bool:
        """Whether messages wait for room."""
        return any(end.busy for end in self._ends.values())

    def ring(self) -> None:
        """Wake the replicas that sleep and have been sent something.

        Only now: who is woken may take the processor from this process.
        """
        ends = [end for end in self._ends.values() if end.rings]
        if ends:
            fence()
            for end in ends:
                end.ring()

    def lie_down(self) -> None:
        """Say that this side sleeps; then there must be a fence, and a last look."""
        for end in self._ends.values():
            end.lie_down()

    def get_up(self) -> None:
        """Say that this side is awake."""
        for end in self._ends.values():
            end.get_up()

    def close(self) -> None:
        """Let go of all lanes."""
        self.retain(frozenset())
        if self._regions is not None:
            self._regions.close()
            self._regions = None

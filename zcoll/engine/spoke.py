"""The engine of a replica that is not rank 0."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

import zmq

from zcoll.engine.engine import Engine
from zcoll.engine.lookout import Lookout
from zcoll.errors import ProtocolError
from zcoll.protocol.events import Send
from zcoll.transport.lane.replica import ReplicaLane
from zcoll.transport.monitor import Event
from zcoll.wire import Kind, parse

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from zcoll.codec import Loads
    from zcoll.engine.request import Request
    from zcoll.engine.shield import NoShield, Shield
    from zcoll.launchers.settings import Liveness
    from zcoll.payload import Buffer, Payload
    from zcoll.protocol.events import Identity
    from zcoll.protocol.replica import Replica
    from zcoll.transport.address import Place
    from zcoll.transport.sockets import Dealer
    from zcoll.wire import Message

MAX_REFUSALS = 256  # failed handshakes that are remembered: for some 10 s
GIVEN_UP = 0.1  # seconds after a connection's end in which libzmq says it tries again
BATCH = 32  # messages taken in before acknowledgements go out


class Spoke(Engine):
    """A DEALER socket and a replica's machine.

    Attributes:
        refusals: When handshakes have failed since a connection last stood.
        connected: Whether a connection has ever stood.
        in_touch: Whether one stands now.
    """

    def __init__(
        self,
        identity: Identity,
        replica: Replica,
        place: Place,
        liveness: Liveness,
        loads: Loads | None,
        dealer: Dealer,
        *,
        shares_memory: bool,
    ) -> None:
        super().__init__(identity, replica, place, liveness, loads)
        self.refusals: deque[float] = deque(maxlen=MAX_REFUSALS)
        self.connected = self.in_touch = False
        self._broken_at: float | None = None
        self._hung_up = False
        self._dealer = dealer
        self._lane = ReplicaLane(dealer, self._bell.fd, wanted=shares_memory)
        self._lookout = Lookout(self._lane, identity.num_replicas)
        self._register(dealer.socket)
        self._register(dealer.monitor)
        self._brief.append((dealer.socket, zmq.POLLIN))

    @property
    def waiting_for(self) -> list[int]:
        """The ranks that are missing, as far as it is known."""
        return self._replica.waiting_for

    def let_go(self) -> None:
        """In a forked child: close its copies of the connection and the lane."""
        super().let_go()
        self._lane.drop()

    def move(self, place: Place) -> None:
        """Rank 0 has a new address: connect there. For the program's threads."""

        def job() -> None:
            self._place = place
            self.refusals.clear()
            self._dealer.move(place)

        self._post(job)

    def _receive(self, ready: AbstractSet[Any], now: float) -> None:
        # A connection's end is read before its last messages, and applied after.
        events = self._dealer.events() if self._dealer.monitor in ready else []
        most = self._lane.unread if Event.DISCONNECTED in events else 0
        socket = self._dealer.socket in ready or bool(events)
        self._mind_lane(lambda: self._receive_messages(max(BATCH, most), socket, now))
        for event in events:
            self._apply(event, now)
        self._mind_lane(self._lane.flush)

    def _receive_messages(self, most: int, socket: bool, now: float) -> None:
        for frames in self._lane.receive(most, socket=socket):
            self._take_in(frames, now)

    def _take_in(self, frames: list[Buffer], now: float) -> None:
        try:
            message = parse(frames)
        except ProtocolError as error:
            self._replica.misled(error)
            return
        self._replica.receive(message, now)
        if message.kind is Kind.WELCOME:
            self._lane.offer()

    # --- the short way of a call --------------------------------------------

    def _go_short_way(
        self, request: Request, guard: Shield | NoShield
    ) -> Payload | None:
        called = self._replica.call_at_once(request.made)
        if called is None:
            return None
        request.seq, frame = called
        outcome = None
        try:
            self._mind_lane(lambda: self._lane.send_numbered([frame]))
            self._lane.ring()
            while outcome is None and not request.begun:
                outcome = self._await_outcome(request, guard)
        finally:
            if outcome is None and not request.begun:  # a signal has come
                self._take_long_way(request)
        return outcome

    def _take_long_way(self, request: Request) -> None:
        """From here on a call that has been made is as all others are."""
        self._backlogs.enter_at_once(request.made.group)
        self._keep_track(request, request.seq)

    def _await_outcome(
        self, request: Request, guard: Shield | NoShield
    ) -> Payload | None:
        """Sleep once: the outcome, if it has come; or the long way has begun."""
        ready = self._sleep_briefly(guard)
        if ready is None:
            self._take_long_way(request)
            return None
        outcome = None
        socket, now = self._dealer.socket in ready, time.monotonic()
        try:
            for frames in self._lane.receive(BATCH, socket=socket):
                if outcome is None and not request.begun:
                    group = request.made.group
                    outcome = self._replica.end_at_once(group, frames, now)
                    if outcome is not None:
                        continue
                    self._take_long_way(request)
                self._take_in(frames, now)
            if self._lane.busy:  # part of what this call sends may wait for room
                self._lane.flush()
                self._lane.ring()
        except ProtocolError as error:
            self._mislead(error)
        if outcome is not None or request.begun:
            self._obey(now)
            self._lane.ring()
        return outcome

    def _mind_lane(self, act: Callable[[], object]) -> None:
        """Do something with the lane, whose memory rank 0 can write to."""
        try:
            act()
        except ProtocolError as error:
            self._mislead(error)

    def _mislead(self, error: ProtocolError) -> None:
        """What stands in the lane's memory makes no sense."""
        self._lane.drop()
        self._replica.misled(error)

    def _apply(self, event: Event, now: float) -> None:
        self._broken_at = None
        if event is Event.CONNECTED:
            self.refusals.clear()
            self.connected = self.in_touch = True
            self._replica.connected(now)
        elif event is Event.DISCONNECTED:
            self._broken_at = now
            self._lane.drop()
            self.in_touch = False
            self._replica.disconnected(now)
        elif event is Event.REFUSED:
            self._broken_at = now
            self.refusals.append(now)

    def _tick(self, now: float) -> None:
        self._dealer.cut_clogged(now)
        self._mind_lane(lambda: self._lane.tick(now))
        if self._replica.gone and not self._leaving and not self._hung_up:
            # Rank 0 must learn that this replica has given it up, even if it only
            # comes back to life now: a connection would look like a sign of life.
            self._hung_up = True
            self._dealer.hang_up()
        if self._broken_at is not None and now - self._broken_at >= GIVEN_UP:
            self._broken_at = None
            if not self._hung_up:
                self._dealer.reconnect()
        super()._tick(now)

    def _obey(self, now: float) -> None:
        while instructions := self._replica.take():
            for instruction in instructions:
                if isinstance(instruction, Send):
                    self._send(instruction.message)
                else:
                    self._inform(instruction, now)

    def _send(self, message: Message) -> None:
        # What is not sent here is sent again after the reconnect.
        try:
            self._lane.send(message)
        except ProtocolError as error:
            self._mislead(error)

    def _is_busy(self) -> bool:
        return self._replica.busy or super()._is_busy()

    def _state_of_drain(self) -> tuple[bool, Any]:
        return self._replica.gone, self._replica.acknowledged

    def _close(self) -> None:
        self._lane.drop()
        self._dealer.close()

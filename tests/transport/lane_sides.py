"""The two processes of a lane on a simulated machine: their ends, loops and programs.

The ends are those of rank 0 and of a replica, as they are in the package; the memory,
the bells and the connection beside them are the machine's.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, cast

from lane_machine import Processor, Segment

from zcoll.engine.lookout import Lookout
from zcoll.payload import Buffer
from zcoll.transport.lane import lane as lanes
from zcoll.transport.lane.end import End
from zcoll.transport.lane.hub import HubLanes
from zcoll.transport.lane.replica import ReplicaLane
from zcoll.wire import Message, parse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lane_world import World

    from zcoll.transport.sockets import Dealer, Router

MANY = 10**6  # replicas: nobody looks for a while, as there is a step for each look
PEER = b"peer"


class Socket:
    """One end of the connection beside the lane: what is sent arrives, in order."""

    other: Socket

    def __init__(self, processor: Processor) -> None:
        self.arrived: deque[list[Buffer]] = deque()
        self._processor = processor

    def send(self, frames: list[Buffer]) -> bool:
        self._processor.call_system()
        self.other.arrived.append(frames)
        self._processor.other.ring()
        return True

    def receive(self) -> Any:
        self._processor.call_system()
        return self.arrived.popleft() if self.arrived else None

    def holds_more(self) -> bool:
        return bool(self.arrived)


class RouterSocket(Socket):
    """Rank 0's end."""

    def send(self, *to: Any) -> bool:
        return super().send(to[-1])

    def receive(self) -> Any:
        frames = super().receive()
        return None if frames is None else (PEER, frames)


class Ring:
    """A way to the other side's bell."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor

    def ring(self) -> None:
        self._processor.step()
        self._processor.other.ring()

    def close(self) -> None:
        pass


class Side:
    """A process with an end of the lane: its loop, and a program that sends.

    Attributes:
        messages: What it sends.
        received: What has come.
        lanes: Its end, as its loop sees it.
    """

    MADE = False  # the memory, by this side
    lanes: HubLanes | ReplicaLane
    other: Side

    def __init__(self, processor: Processor, world: World, socket: Socket) -> None:
        self.messages = world.draw_messages()
        self.received: list[Message] = []
        self.socket = socket
        self._processor = processor
        self._world = world
        self._unsent = deque(self.messages)
        self._ahead = world.chance.choice([1, 2, 100])  # of the other's messages
        self._gone = False  # the other side
        self._now = 0.0
        self._begun = False
        self._gets_up = world.chance.random() < 0.5  # the loop's own thread does not

    def live(self) -> None:
        """Begin a lane, do all that is to be done, and end it."""
        shared = self._world.memory, self._world.reserved
        segment: Any = Segment(self._processor, *shared, self._refuse)
        ring: Any = Ring(self._processor)
        self._lane = lanes.Lane(segment, ring, made=self.MADE)
        self._begun = True
        self._end = End(self._lane, self.socket.send, lambda: None)
        self._end.sends = self._end.begun = True
        self.attach(self._end)
        self._lookout = Lookout(self.lanes, MANY)
        self._act()
        while not self._is_done():
            self._rest()
            self._act()
        if self._gone:  # and all that it has left behind is read
            assert self._end.take() is None
        self._world.counts["by the socket"] += not self._end.sends
        self.close()

    def _refuse(self) -> bool:
        return self._begun and self._world.chance.random() < self._world.full

    def _is_done(self) -> bool:
        all_came = len(self.received) == len(self.other.messages)
        return self._gone or not (self._unsent or self.lanes.busy or not all_came)

    def _due(self) -> range:
        """Those of its messages that need not wait for one of the other side's."""
        due = len(self.messages)
        if len(self.received) < len(self.other.messages):
            due = min(due, len(self.received) + self._ahead)
        return range(len(self.messages) - len(self._unsent), due)

    # --- a step of the loop -----------------------------------------------

    def _act(self) -> None:
        chance, gone = self._world.chance, self._processor.other.over
        for frames in self.take(1000 if gone else chance.choice([1, 2, 100]), gone):
            self._processor.step()  # what is lent must stay as it is
            message = parse(frames)
            if message.data is not None:
                message.data = bytes(message.data)
            self.received.append(message)
        if self.lanes.busy:
            self.lanes.flush()
        for _ in range(min(len(self._due()), chance.randint(0, 3))):
            assert self.send(self._unsent.popleft())
        if chance.random() < 0.5:
            self._now += chance.choice([0.1, 2.0]) * lanes.IDLE
            before = self._lane._writer.reserved
            self.lanes.tick(self._now)
            self._world.counts["given back"] += self._lane._writer.reserved < before
        self.lanes.ring()
        self._gone = gone

    def _rest(self) -> None:
        if self._lookout.look(self._due()):
            return
        if self._lookout.lie_down():
            self._world.counts["slept"] += 1
            self._processor.poll(self.socket.holds_more)
        if self._gets_up:
            self._lookout.get_up()
        self._processor.rung = False  # it has been heard

    # --- what a subclass says ---------------------------------------------

    def attach(self, end: End) -> None:
        """Let the lane be used."""
        raise NotImplementedError

    def send(self, message: Message) -> bool:
        """Send to the other side."""
        raise NotImplementedError

    def take(self, most: int, everything: bool) -> Iterable[list[Buffer]]:
        """Take so many messages at most, or all that the other side has left."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of the lane."""
        raise NotImplementedError


class HubSide(Side):
    """Rank 0."""

    def __init__(self, processor: Processor, world: World, socket: Socket) -> None:
        super().__init__(processor, world, socket)
        router = cast("Router", socket)
        self.lanes = self._lanes = HubLanes(router, 0, lambda peer: True, wanted=True)

    def attach(self, end: End) -> None:
        self._lanes._ends[PEER] = end

    def send(self, message: Message) -> bool:
        return self._lanes.send(PEER, message)

    def take(self, most: int, everything: bool) -> Iterable[list[Buffer]]:
        ready = self.socket.holds_more()
        for _, frames in self._lanes.receive(most, socket=ready, everything=everything):
            yield frames
        assert not self._lanes.take_broken()

    def close(self) -> None:
        self._lanes.close()


class ReplicaSide(Side):
    """The other one."""

    MADE = True

    def __init__(self, processor: Processor, world: World, socket: Socket) -> None:
        super().__init__(processor, world, socket)
        self.lanes = self._own = ReplicaLane(cast("Dealer", socket), 0, wanted=True)

    def attach(self, end: End) -> None:
        self._own._end = end

    def send(self, message: Message) -> bool:
        return self._own.send(message)

    def take(self, most: int, everything: bool) -> Iterable[list[Buffer]]:
        most = max(most, self._own.unread) if everything else most
        return self._own.receive(most, socket=self.socket.holds_more())

    def close(self) -> None:
        self._own.drop()

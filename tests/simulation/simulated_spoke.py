"""A replica other than rank 0, and its connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.simulated_network import Direction
from simulation.simulated_node import Key, Node, freeze

from zcoll.protocol.events import Send
from zcoll.protocol.link import Link
from zcoll.wire import parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulation.simulated_group import Group
    from simulation.simulated_hub import Hub
    from simulation.simulated_network import Frames

    from zcoll.protocol.events import Contribution, Peer

RETRY = 0.1  # virtual seconds between attempts to connect


class Spoke(Node):
    """A replica's process.

    Attributes:
        peer: Its connection, by rank 0's name for it, or None.
        down_until: Until when it cannot get another one.
    """

    def __init__(self, rank: int, group: Group) -> None:
        super().__init__(rank, group, Link(grants=True))
        self.peer: Peer | None = None
        self.down_until = 0.0
        self._hub: Hub | None = None
        self._up: Direction | None = None
        self._down: Direction | None = None
        self._hung_up = False
        self._short: Key | None = None  # the call that goes the short way

    def connect(self) -> None:
        """Get a connection, now or as soon as it can be had."""
        if self._hung_up:
            return
        hub = self.group.hub
        if self.now < self.down_until or not hub.running:
            self.group.clock.after(RETRY, lambda: self.when_awake(self.connect))
            return
        peer = self.peer = self.group.new_peer()
        self._hub = hub
        hub.add_connection(peer, self)
        before = self._down.last if self._down else 0.0
        self._up = self._direction(lambda frames: hub.arrive(peer, frames), 0.0)
        self._down = self._direction(self.arrive, before)
        self.group.trace(f"{self.rank} is connected as {peer!r}")
        self.replica.connected(self.now)
        self.pump()

    def _direction(self, deliver: Callable[[Frames], None], after: float) -> Direction:
        return Direction(
            self.group.clock,
            self.group.random,
            deliver,
            after=after,
            duplicates=self.group.duplicates,
            counts=self.group.counts,
        )

    def slow_down(self, seconds: float) -> None:
        """What is sent takes long for a while."""
        for direction in (self._up, self._down):
            if direction is not None:
                direction.slow_down(seconds)

    def disconnect(self, linger: float = 0.0) -> None:
        """Lose the connection; a process that is there finds out, and gets another."""
        if (
            self.peer is None
            or self._hub is None
            or self._up is None
            or self._down is None
        ):
            return
        self.group.trace(f"{self.rank} loses its connection {self.peer!r}")
        self._up.cut()
        self._down.cut(linger)
        self._hub.lose_connection(self.peer)
        self.peer = None
        delay = linger + self.group.random.random() * 0.2
        self.group.clock.after(delay, lambda: self.when_awake(self._notice))

    def _notice(self) -> None:
        self.replica.disconnected(self.now)
        self.pump()
        self.when_awake(self.connect)

    def send_down(self, frames: Frames) -> None:
        """What rank 0 sends to this replica."""
        if self._down is not None:
            self._down.send(frames)

    def step(self) -> None:
        super().step()
        if self.running and self.replica.gone and not self._hung_up:
            # Rank 0 must learn that it has been given up; see the engine.
            self._hung_up = True
            self.disconnect()

    def arrive(self, frames: Frames) -> None:
        """A message has come from rank 0."""
        self.when_awake(lambda: self._receive(frames))

    def _receive(self, frames: Frames) -> None:
        message = parse(frames)
        self.group.passes(self.rank, message.kind)
        if self.running:
            self.group.trace(f"{self.rank} <- {message}")
            if not self._end_short_way(frames):
                self.replica.receive(message, self.now)
            self.pump()
        else:
            self.arrive(frames)

    def go_short_way(self, made: Contribution, key: Key) -> bool:
        called = self.replica.call_at_once(made)
        if called is None:
            return False
        seq, frame = called
        assert seq == key[1]
        self._short = key
        if self._up is not None:
            self._up.send([frame])
        return True

    def _end_short_way(self, frames: Frames) -> bool:
        """Take the outcome of a call that has gone the short way, if this is it."""
        if self._short is None:
            return False
        key, self._short = self._short, None
        outcome = self.replica.end_at_once(key[0], list(frames), self.now)
        if outcome is None:
            return False
        self.deliver(key, outcome if outcome.parts else None)
        return True

    def leave_short_way(self) -> None:
        self._short = None

    def progress(self) -> int:
        """What grows as long as something is delivered."""
        return self.replica.acknowledged

    def pump(self) -> None:
        """Carry out what the machine says until it says nothing more."""
        while self.running and (instructions := self.replica.take()):
            for instruction in instructions:
                if not isinstance(instruction, Send):
                    self.inform(instruction)
                elif self._up is not None:
                    self._up.send(freeze(instruction.message))
        if self.running and self._leaving and self.replica.gone:
            self.close()

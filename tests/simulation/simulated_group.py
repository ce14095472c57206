"""A whole group in one thread and virtual time: real machines, simulated rest.

The nodes stand for processes. Each drives its machine as an engine does, makes
the calls of the plan, and notes how each of them ended.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING
from unittest import mock

from simulation.simulated_network import Clock, Direction, Frames
from simulation.simulated_plan import (
    RESULT,
    Input,
    PlannedCall,
    UnreducibleError,
    decode,
    decode_error,
    encode_error,
    reduce_error,
    result_error,
)

from zcoll.errors import ProtocolError
from zcoll.protocol import calls, link
from zcoll.protocol.coordinator import Coordinator
from zcoll.protocol.events import (
    LOCAL,
    Deliver,
    Fail,
    Fold,
    Identity,
    Joined,
    Missing,
    Note,
    Refused,
    Send,
    Timing,
)
from zcoll.protocol.membership import State
from zcoll.protocol.replica import Replica
from zcoll.reducer import Fold as Reduction
from zcoll.wire import pack, parse

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from zcoll.errors import CollectiveError, GroupError, ZcollError
    from zcoll.protocol.events import Peer, ReplicaInstruction
    from zcoll.wire import Message, Payload

    Ending = list[str] | CollectiveError | GroupError | None

TIMING = Timing(beacon_interval=0.3, hello_interval=0.3, reconnect_window=2.0)
TICK = 0.1  # virtual seconds between an engine's looks at the clock
JOIN_LIMIT = 10.0  # virtual seconds that a replica waits for the others
LIMIT = 60.0  # virtual seconds after which everything must be at rest


@contextlib.contextmanager
def small_limits() -> Iterator[None]:
    """Limits so small that short values are chunked, windowed and granted."""
    with (
        mock.patch("zcoll.wire.INLINE_LIMIT", 200),
        mock.patch.object(link, "CHUNK_SIZE", 100),
        mock.patch.object(link, "WINDOW", 300),
        mock.patch.object(link, "ACK_BYTES", 150),
        mock.patch.object(calls, "BUDGET", 600),
    ):
        yield


class Node:
    """One replica's process: its machine, its program, what became of its calls.

    Attributes:
        endings: How each call ended, by its number.
        made: How many calls it has made.
        leaves_after: After how many calls it leaves without a teardown, or None.
        hurries: Whether it then leaves without waiting for anything.
        dead: Whether its process is gone.
        frozen: Whether its process does not run for now.
        closed: Whether it has left and closed everything.
        left_at: When it began to leave, in virtual seconds.
        closed_at: When it had closed.
        reports: How many answers to the question who is missing it has got.
    """

    def __init__(self, rank: int, group: Group, link_end: link.Link) -> None:
        self.rank = rank
        self.group = group
        self.replica = Replica(_identity(rank, group.size), "job", TIMING, link_end)
        self.link = link_end
        self.plan = list(group.plan)
        self.endings: dict[int, Ending] = {}
        self.made = 0
        self.leaves_after: int | None = None
        self.hurries = False
        self.refusal: ZcollError | None = None
        self.dead = self.frozen = self.closed = False
        self.left_at = self.closed_at = 0.0
        self.reports = 0
        self._joined = self._leaving = False
        self._blocked_on = 0
        self._scheduled = False

    @property
    def running(self) -> bool:
        """Whether its process does anything at the moment."""
        return not (self.dead or self.frozen or self.closed)

    # --- the program --------------------------------------------------------------

    def think(self) -> None:
        """Go on with the program after a while."""
        if self._joined and not self._scheduled:
            self._scheduled = True
            pause = self.group.random.choice((0.0, 0.001, 0.02, 0.2))
            self.group.clock.after(pause, self._go_on)

    def _go_on(self) -> None:
        self._scheduled = False
        if not self.running:
            return
        if self.made == self.leaves_after:
            self.leave("it was planned")
            if self.hurries:
                self.replica.leave("it was planned")
        elif self.made < len(self.plan):
            self._make_call(self.plan[self.made])
        elif len(self.endings) == self.made:
            self.leave("")
        self.pump()

    def _make_call(self, planned: PlannedCall) -> None:
        self.made += 1
        operation, own = planned.operation, planned.inputs[self.rank]
        payload = error = None
        if operation.contributes(self.rank, planned.root):
            if own.defect == "encode":
                error = encode_error(self.rank)
            else:
                payload = own.encode()
        self.group.trace(f"{self.rank} calls {self.made}: {operation.name}")
        seq = self.replica.call(operation, planned.root, planned.site, payload, error)
        assert seq == self.made
        if self.group.random.random() < 0.5 and seq not in self.endings:
            self._blocked_on = seq
            if self.group.random.random() < 0.1:
                self.replica.ask(seq)
        else:
            self.think()

    def leave(self, reason: str) -> None:
        """Leave the group, as close() does."""
        if not self._leaving:
            self.group.trace(f"{self.rank} leaves: {reason}")
            self._leaving = True
            self.left_at = self.group.clock.now
            self.replica.leave(reason)

    def close(self) -> None:
        """Nothing holds this replica any longer."""
        self.group.trace(f"{self.rank} is gone")
        self.closed, self.closed_at = True, self.group.clock.now

    def _ended(self, seq: int, ending: Ending) -> None:
        assert seq not in self.endings, f"call {seq} of {self.rank} ended twice"
        self.group.trace(f"{self.rank} has {seq}: {ending!r:.60}")
        self.endings[seq] = ending
        if self._blocked_on in (0, seq):
            self._blocked_on = 0
            self.think()

    # --- the engine ---------------------------------------------------------------

    def tick(self) -> None:
        """Time passes, for as long as the process is there."""
        if self.dead or self.closed:
            return
        if self.running:
            self.replica.tick(self.group.clock.now)
            if not self.made and self.group.clock.now > JOIN_LIMIT:
                self.leave("the group is not complete")
            self.pump()
        self.group.clock.after(TICK, self.tick)

    def pump(self) -> None:
        """Carry out what the machine says until it says nothing more."""
        raise NotImplementedError

    def inform(self, instruction: ReplicaInstruction) -> None:
        """Take in what the machine says to its program."""
        if isinstance(instruction, Deliver):
            payload = instruction.payload
            value = None if payload is None else decode(payload).value
            self._ended(instruction.seq, value)
        elif isinstance(instruction, Fail):
            self._ended(instruction.seq, instruction.error)
        elif isinstance(instruction, Joined):
            self._joined = True
            self.think()
        elif isinstance(instruction, Refused):
            self.refusal = instruction.error
            self.close()
        elif isinstance(instruction, Missing):
            assert instruction.ranks == sorted(instruction.ranks)
            self.reports += 1
        else:
            assert isinstance(instruction, Note)
            self.group.trace(f"{self.rank} notes: {instruction.text}")


class Spoke(Node):
    """A replica other than rank 0, and its connection."""

    def __init__(self, rank: int, group: Group) -> None:
        super().__init__(rank, group, link.Link(grants=True))
        self.peer: Peer | None = None
        self._up: Direction | None = None
        self._down: Direction | None = None

    def connect(self) -> None:
        """Get a new connection, and say so to the machine."""
        if not self.running or self.group.hub.dead or self.group.hub.closed:
            return
        self.peer = self.group.new_peer(self)
        peer, hub = self.peer, self.group.hub
        before = self._down.last if self._down else 0.0
        self._up = self._direction(lambda frames: hub.arrive(peer, frames), 0.0)
        self._down = self._direction(self.arrive, before)
        self.group.trace(f"{self.rank} is connected as {peer!r}")
        self.replica.connected(self.group.clock.now)
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

    def cut(self, *, back_after: float | None) -> None:
        """Lose the connection; get another one after so many seconds, if any."""
        if self.peer is None or self._up is None or self._down is None:
            return
        self.group.trace(f"{self.rank} loses its connection {self.peer!r}")
        self._up.cut()
        self._down.cut()
        self.group.hub.lose_connection(self.peer)
        self.peer = None
        if not self.dead:
            self.group.clock.after(
                self.group.random.random() * 0.2, lambda: self._notice(back_after)
            )

    def _notice(self, back_after: float | None) -> None:
        if self.frozen:
            self.group.clock.after(TICK, lambda: self._notice(back_after))
        elif self.running:
            self.replica.disconnected(self.group.clock.now)
            if back_after is not None:
                self.group.clock.after(back_after, self.connect)
            self.pump()

    def send_down(self, frames: Frames) -> None:
        """What rank 0 sends to this replica."""
        if self._down is not None:
            self._down.send(frames)

    def arrive(self, frames: Frames) -> None:
        """A message has come from rank 0."""
        if self.frozen:
            self.group.clock.after(TICK, lambda: self.arrive(frames))
        elif self.running:
            message = parse(frames)
            self.group.trace(f"{self.rank} <- {message}")
            self.replica.receive(message, self.group.clock.now)
            self.pump()

    def pump(self) -> None:
        """Carry out what the machine says until it says nothing more."""
        while self.running and (instructions := self.replica.take()):
            for instruction in instructions:
                if not isinstance(instruction, Send):
                    self.inform(instruction)
                elif self._up is not None:
                    self._up.send(_frozen_frames(instruction.message))
        if self.running and self._leaving and self.replica.gone:
            self.close()
            self.cut(back_after=None)


class Hub(Node):
    """Rank 0: the coordinator, and its own replica beside it."""

    def __init__(self, group: Group) -> None:
        super().__init__(0, group, link.LocalLink())
        own = _identity(0, group.size)
        self.coordinator = Coordinator(own, 77, "job", TIMING)
        self.coordinator.announce()
        self._connections: dict[Peer, Spoke] = {}
        self._reductions: dict[int, Reduction] = {}

    def tick(self) -> None:
        """Time passes, for as long as the process is there."""
        if self.running:
            self.coordinator.tick(self.group.clock.now)
        super().tick()

    def add_connection(self, peer: Peer, spoke: Spoke) -> None:
        """Messages to this peer reach that replica from now on."""
        self._connections[peer] = spoke

    def lose_connection(self, peer: Peer) -> None:
        """Messages to this peer are lost, and a bit later cannot be sent."""
        delay = self.group.random.choice((0.001, 0.1, 0.4))
        self.group.clock.after(delay, lambda: self._notice(peer))

    def _notice(self, peer: Peer) -> None:
        self._connections.pop(peer, None)
        if self.running:
            self.coordinator.unreachable(peer, self.group.clock.now)
            self.pump()

    def arrive(self, peer: Peer, frames: Frames) -> None:
        """A message has come from a connection."""
        if not self.running:
            return
        try:
            message = parse(frames)
        except ProtocolError as error:
            self.coordinator.misbehaved(peer, error)
        else:
            self.group.trace(f"0 <- {peer!r} {message}")
            self.coordinator.receive(peer, message, self.group.clock.now)
        self.pump()

    def pump(self) -> None:
        """Carry out what the machines say until they say nothing more."""
        busy = True
        while busy and self.running:
            busy = False
            for instruction in self.coordinator.take():
                busy = True
                if isinstance(instruction, Send):
                    self._send(instruction)
                elif isinstance(instruction, Fold):
                    self._start_fold(instruction)
                else:
                    self.group.trace(f"0 notes: {instruction.text}")
            for answer in self.replica.take():
                busy = True
                if isinstance(answer, Send):
                    now = self.group.clock.now
                    self.coordinator.receive(LOCAL, answer.message, now)
                else:
                    self.inform(answer)
        if self.running and self._leaving and self.coordinator.drained:
            self.close()
            self.cut_all()

    def cut_all(self) -> None:
        """Lose every connection for good."""
        for spoke in self.group.spokes:
            spoke.cut(back_after=None)

    def _send(self, send: Send) -> None:
        now = self.group.clock.now
        if send.peer == LOCAL:
            self.replica.receive(send.message, now)
        elif send.peer not in self._connections:
            self.coordinator.unreachable(send.peer, now)
        elif (spoke := self._connections[send.peer]).peer == send.peer:
            spoke.send_down(_frozen_frames(send.message))

    # --- the fold -----------------------------------------------------------------

    def _start_fold(self, fold: Fold) -> None:
        delay = self.group.random.choice((0.0, 0.001, 0.03))
        self.group.clock.after(delay, lambda: self._finish_fold(fold))

    def _finish_fold(self, fold: Fold) -> None:
        if self.running:
            result, error = self._fold(fold)
            self.coordinator.folded(fold.seq, result, error)
            self.pump()

    def _fold(self, fold: Fold) -> tuple[Payload | None, CollectiveError | None]:
        planned = self.plan[fold.seq - 1]
        reduction = self._reductions.setdefault(fold.seq, Reduction(planned.reduce))
        for rank, payload in fold.operands:
            try:
                operand = decode(payload)
            except EOFError:
                return None, decode_error(rank)
            try:
                # The first operand is the fold's value, the others are inputs.
                reduction.add(operand.value if reduction.result is None else operand)
            except UnreducibleError:
                return None, reduce_error(operand)
        if not fold.last:
            return None, None
        if planned.inputs[-1].defect == RESULT:
            return None, result_error()
        cut = self.group.random.choice(((), (70,), (10, 300)))
        return Input(self._reductions.pop(fold.seq).result, cut).encode(), None


class Group:
    """All nodes of a group, and what they share.

    Attributes:
        counts: What was injected and checked.
    """

    def __init__(
        self,
        random: random.Random,
        plan: list[PlannedCall],
        *,
        duplicates: float = 0.0,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.random = random
        self.plan = plan
        self.size = len(plan[0].inputs)
        self.duplicates = duplicates
        self.counts: Counter[str] = Counter()
        self.clock = Clock()
        self._trace = trace
        self._peers = 0
        self.hub = Hub(self)
        self.spokes = [Spoke(rank, self) for rank in range(1, self.size)]
        self.nodes: list[Node] = [self.hub, *self.spokes]

    def trace(self, line: str) -> None:
        """Write down what happens, for the eyes of somebody."""
        if self._trace is not None:
            self._trace(f"{self.clock.now:9.4f} {line}")

    def new_peer(self, spoke: Spoke) -> Peer:
        """A routing id that no connection has had before."""
        self._peers += 1
        peer = b"%d" % self._peers
        self.hub.add_connection(peer, spoke)
        return peer

    def run(self) -> None:
        """Let it all happen."""
        self.hub.pump()
        for node in self.nodes:
            self.clock.after(0.0, node.tick)
        for spoke in self.spokes:
            self.clock.after(self.random.random() * 0.3, spoke.connect)
        self.clock.run(LIMIT)

    def present(self) -> list[int]:
        """The ranks that rank 0 still counts on."""
        return [
            member.rank
            for member in self.hub.coordinator.membership.members
            if member.state is State.PRESENT
        ]


def _frozen_frames(message: Message) -> Frames:
    return [bytes(frame) for frame in pack(message)]


def _identity(rank: int, size: int) -> Identity:
    return Identity(rank, size, "host", 1000 + rank, 5000 + rank, "1", "3")

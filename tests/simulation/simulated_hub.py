"""Rank 0: the coordinator, its own replica beside it, and the fold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.simulated_node import TIMING, Key, Node, freeze

from zcoll.engine.folding import Folder
from zcoll.errors import ProtocolError
from zcoll.protocol import grants
from zcoll.protocol.coordinator import Coordinator
from zcoll.protocol.events import LOCAL, Fold, Forget, Send
from zcoll.protocol.gathering import Gathering
from zcoll.protocol.link import LocalLink
from zcoll.wire import parse

if TYPE_CHECKING:
    from simulation.simulated_group import Group
    from simulation.simulated_network import Frames
    from simulation.simulated_spoke import Spoke

    from zcoll.protocol.events import Contribution, Peer

LINGER = 0.2  # virtual seconds for the last acknowledgements to leave
LARGEST = 5000  # bytes of any replica's payload, at most


class Hub(Node):
    """Rank 0's process; a restart of rank 0 is another one.

    Args:
        group: The group.
        session: Its session's number.
    """

    def __init__(self, group: Group, session: int) -> None:
        super().__init__(0, group, LocalLink())
        self.session = session
        self.coordinator = Coordinator(self.identity, session, "job", TIMING)
        self.coordinator.announce()
        self._connections: dict[Peer, Spoke] = {}
        self._folder = Folder(None, self.coordinator.reports.reducing)
        self._gathering: Gathering | None = None
        self._short: tuple[Contribution, Key] | None = None

    def step(self) -> None:
        self.leave_short_way()
        self.coordinator.tick(self.now)
        super().step()
        for _, calls in self.coordinator.decisions.groups:
            assert len(calls._open) <= self.group.max_pending
            # What is only forwarded is needed all at once.
            assert 0 <= calls._grants.held <= grants.BUDGET + self.group.size * LARGEST

    def add_connection(self, peer: Peer, spoke: Spoke) -> None:
        """Messages to this peer reach that replica from now on."""
        self._connections[peer] = spoke

    def lose_connection(self, peer: Peer) -> None:
        """Messages to this peer are lost, and a bit later cannot be sent."""
        delay = self.group.random.choice((0.001, 0.1, 0.4))
        self.group.clock.after(delay, lambda: self.when_awake(lambda: self._miss(peer)))

    def _miss(self, peer: Peer) -> None:
        self._connections.pop(peer, None)
        self.leave_short_way()
        self.coordinator.unreachable(peer, self.now)
        self.pump()

    def disconnect(self, linger: float = 0.0) -> None:
        """Lose every connection; what was sent leaves, if the process closes them."""
        linger = LINGER if self.closed else linger
        for spoke in list(self._connections.values()):
            if spoke.peer in self._connections:
                spoke.disconnect(linger)

    def arrive(self, peer: Peer, frames: Frames) -> None:
        """A message has come from a connection."""
        self.when_awake(lambda: self._receive(peer, frames))

    # --- the short way ------------------------------------------------------------

    def go_short_way(self, made: Contribution, key: Key) -> bool:
        gathering = Gathering.begin(self.coordinator, self.replica, made)
        if gathering is None:
            return False
        assert gathering.seq == key[1]
        self._gathering, self._short = gathering, (made, key)
        return True

    def leave_short_way(self) -> None:
        gathering, self._gathering = self._gathering, None
        if gathering is not None and self._short is not None:
            made, key = self._short
            for peer, frames in gathering.held:
                self.coordinator.receive(peer, parse(frames), self.now)
            assert self.replica.calling.call(made) == key[1]

    def _gather(self, peer: Peer, frames: Frames) -> bool:
        """Hold a part of the call that goes the short way, if this is one."""
        gathering = self._gathering
        if gathering is None:
            return False
        if gathering.complete or not gathering.take(peer, list(frames)):
            self.leave_short_way()
            return False
        if gathering.complete:
            delay = self.group.random.choice((0.0, 0.001, 0.03))
            self.group.clock.after(
                delay, lambda: self.when_awake(lambda: self._conclude(gathering))
            )
        return True

    def _conclude(self, gathering: Gathering) -> None:
        """The fold is done; unless something else has come meanwhile."""
        if self._gathering is not gathering or self._short is None:
            return
        made, key = self._short
        results = None
        if made.operation.folding is not None:
            operands = gathering.payloads.values()
            fold = made.operation.folding, operands, self.functions[key]
            results = self._folder.fold_at_once(*fold)
            if results is None:
                self.leave_short_way()
                self.pump()
                return
        self._gathering = None
        frames, outcome = gathering.conclude(results, self.now)
        for peer, frame in frames:
            self._send_to(peer, [frame])
        self.deliver(key, outcome if outcome.parts else None)
        self.pump()

    # --- the long way -------------------------------------------------------------

    def _receive(self, peer: Peer, frames: Frames) -> None:
        try:
            message = parse(frames)
        except ProtocolError as error:
            self.leave_short_way()
            self.coordinator.misbehaved(peer, error)
            self.pump()
            return
        self.group.passes(message.rank, message.kind)
        if self.running:
            self.group.trace(f"0 <- {peer!r} {message}")
            if not self._gather(peer, frames):
                self.coordinator.receive(peer, message, self.now)
                self.pump()
        else:
            self.arrive(peer, frames)

    def progress(self) -> int:
        """What grows as long as something is delivered."""
        return self.coordinator.progress

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
                elif isinstance(instruction, Forget):
                    self._folder.release(instruction.group)
                else:
                    self.group.trace(f"0 notes: {instruction.text}")
            for answer in self.replica.take():
                busy = True
                if isinstance(answer, Send):
                    self.coordinator.receive(LOCAL, answer.message, self.now)
                else:
                    self.inform(answer)
        if self.running and self._leaving and self.coordinator.drained:
            self.close()

    def _send(self, send: Send) -> None:
        if send.peer == LOCAL:
            self.replica.receive(send.message, self.now)
        else:
            self._send_to(send.peer, freeze(send.message))

    def _send_to(self, peer: Peer, frames: Frames) -> None:
        if peer not in self._connections:
            self.coordinator.unreachable(peer, self.now)
        elif (spoke := self._connections[peer]).peer == peer:
            spoke.send_down(frames)

    # --- the fold -----------------------------------------------------------------

    def _start_fold(self, fold: Fold) -> None:
        delay = self.group.random.choice((0.0, 0.001, 0.03))
        self.group.clock.after(
            delay, lambda: self.when_awake(lambda: self._finish_fold(fold))
        )

    def _finish_fold(self, fold: Fold) -> None:
        own = fold.call.contributors[0] == 0
        function = self.functions.get((fold.group, fold.call.seq)) if own else None
        if own and function is None:
            return  # the call has ended otherwise
        key = (fold.group, fold.call.seq)
        self.coordinator.folded(*key, *self._folder.fold(fold, function, ""))
        self.pump()

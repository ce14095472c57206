"""The short way of a call at rank 0: everybody's part is gathered, then it is over.

Nearly every call is small, is made by everybody, and nothing happens meanwhile. Its
parts need not become messages, an open call, steps and instructions one after the
other: they are held until all are there, and only then does anything change, all at
once. What that leaves behind is what the long way would have. Whatever else comes
ends the gathering, and what it holds goes the long way as if it came just now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zcoll.operations import Who
from zcoll.protocol.events import HUB, Send
from zcoll.protocol.members import State
from zcoll.protocol.outcomes import Outcome, forward, reduced
from zcoll.wire import Kind, Message, Payload, parse_small

if TYPE_CHECKING:
    from zcoll.protocol.calls import Calls
    from zcoll.protocol.coordinator import Coordinator
    from zcoll.protocol.events import Contribution, Peer
    from zcoll.protocol.members import Member
    from zcoll.protocol.replica import Replica
    from zcoll.wire import Buffer


class Gathering:
    """A call of rank 0's own program, and the parts of the others as they come.

    Args:
        coordinator: The group's.
        replica: Rank 0's own machine.
        calls: Those of the group in which it is called.
        made: Rank 0's part; the call folds by its function, if it folds.

    Attributes:
        held: The messages that have come, with their peers, in their order.
        seq: The call's number in its group.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        replica: Replica,
        calls: Calls,
        made: Contribution,
    ) -> None:
        self.held: list[tuple[Peer, list[Buffer]]] = []
        self._coordinator = coordinator
        self._replica = replica
        self._calls = calls
        self._made = made
        self.seq = calls.decided + 1
        self._call = (self.seq, made.operation.code, made.root, made.group)
        # By rank: who it is, the number and ack of its message, its site and payload.
        self._parts: dict[int, tuple[Member, int, int, str, Buffer]] = {}

    @classmethod
    def begin(
        cls, coordinator: Coordinator, replica: Replica, made: Contribution
    ) -> Gathering | None:
        """Begin to gather, unless the call has to go the long way.

        Args:
            coordinator: The group's.
            replica: Rank 0's own machine.
            made: What rank 0's program calls: nobody has been told of it.
        """
        calls = coordinator.decisions.groups.find(made.group)
        payload, operation = made.payload, made.operation
        if (
            calls is None
            or not calls.quiet
            or not coordinator.silent
            or not replica.is_quiet(made.group)
            or operation.ends
            or operation.makes is not None
            or operation.spread
            or made.error is not None
            or not (payload is None or payload.inline)
        ):
            return None
        return cls(coordinator, replica, calls, made)

    def take(self, peer: Peer, frames: list[Buffer]) -> bool:
        """Hold a message, if it is another replica's part of the call.

        Returns:
            Whether it is; else the gathering is over.
        """
        fields = parse_small(frames, Kind.CONTRIBUTE)
        member = self._coordinator.membership.by_peer(peer)
        if fields is None or member is None or member.rank in self._parts:
            return False
        operation, root, session, group, seq, number, ack, site, tag, body = fields
        made = self._made
        if (
            (seq, operation, root, group) != self._call
            or tag != made.tag
            or session != self._coordinator.session
            or member.state is not State.PRESENT
            or member.contested is not None
            or not member.link.expects(number, ack)
            or member.rank not in self._calls.roll
            or bool(body) != self._contributes(member.rank)
        ):
            return False
        self._parts[member.rank] = (member, number, ack, site, body)
        self.held.append((peer, frames))
        return True

    def _contributes(self, rank: int) -> bool:
        operation = self._made.operation
        if operation.source is Who.EVERYBODY:
            return True
        return operation.contributes(rank, self._calls.roll.ranks[self._made.root])

    @property
    def complete(self) -> bool:
        """Whether everybody's part is there."""
        return len(self._parts) + 1 == len(self._calls.roll.ranks)

    @property
    def payloads(self) -> dict[int, Payload]:
        """What was contributed, by rank, in the order of ranks."""
        found = {}
        for rank in self._calls.roll.ranks:
            if not self._contributes(rank):
                continue
            if rank != HUB:
                found[rank] = Payload([self._parts[rank][4]], True)
            elif self._made.payload is not None:
                found[rank] = self._made.payload
        return found

    def conclude(
        self,
        results: list[Payload] | None,
        now: float,
    ) -> tuple[list[Send], Payload]:
        """Take in all that is held, and decide the call.

        Args:
            results: What the fold gave, if the call folds.
            now: The time.

        Returns:
            What goes to the others now, and what rank 0's program gets.
        """
        made, seq, roll = self._made, self.seq, self._calls.roll
        called = (seq, made.operation, made.root, made.tag)
        roll.note(HUB, *called, made.site)
        for rank, (member, number, ack, site, _) in self._parts.items():
            member.link.take(number, ack)
            member.heard = now
            roll.note(rank, *called, site)
        self._calls.conclude(seq)
        self._coordinator.concluded(made.group, roll.ranks)
        self._replica.calling.concluded(made)
        outcome = self._outcome(results)
        sends = [self._tell(part[0], outcome) for part in self._parts.values()]
        return [send for send in sends if send is not None], outcome.of(HUB)

    def _outcome(self, results: list[Payload] | None) -> Outcome:
        operation, ranks = self._made.operation, self._calls.roll.ranks
        root = ranks[self._made.root]
        if results is not None:
            return reduced(operation, root, ranks, ranks, results)
        if operation.source is Who.NOBODY:
            return Outcome()
        return forward(operation, root, ranks, self.payloads, {})

    def _tell(self, member: Member, outcome: Outcome) -> Send | None:
        """Tell a replica its outcome; None if that has to wait, or comes in chunks."""
        payload = outcome.of(member.rank)
        made = self._made
        message = Message(
            Kind.OUTCOME, made.operation.code, group=made.group, seq=self.seq
        )
        if payload.inline:
            message.body = payload.parts[0]
        if (
            (payload.parts and not message.body)
            or member.peer is None
            or not member.link.send_at_once(message)
        ):
            message.payload = payload
            self._coordinator.post(member, message)
            return None
        message.session = self._coordinator.session
        return Send(message, member.peer)

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
from zcoll.payload import Payload
from zcoll.protocol.events import HUB
from zcoll.protocol.members import State
from zcoll.protocol.outcomes import Outcome, forward, reduced
from zcoll.wire import Common, Kind, Message

if TYPE_CHECKING:
    from zcoll.payload import Buffer
    from zcoll.protocol.calls import Calls
    from zcoll.protocol.coordinator import Coordinator
    from zcoll.protocol.events import Contribution, Peer
    from zcoll.protocol.members import Member
    from zcoll.protocol.replica import Replica


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
        call = coordinator.session, made.group, self.seq
        code = made.operation.code
        self._common = Common(Kind.CONTRIBUTE, code, made.root, *call, made.tag)
        self._outcomes = Common(Kind.OUTCOME, code, 0, *call)
        # By rank: who it is, its message's number and ack, and its site and payload.
        self._parts: dict[int, tuple[Member, int, int, Buffer, Buffer]] = {}

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
            # Then the function is another replica's, and comes behind its part.
            or (operation.folding is not None and calls.roll.ranks[0] != HUB)
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
        found = self._common.parse(frames)
        member = self._coordinator.membership.by_peer(peer)
        if (
            found is None
            or member is None
            or member.state is not State.PRESENT
            or member.contested is not None
            or member.rank in self._parts
            or member.rank not in self._calls.roll
            or not member.link.expects(found[0], found[1])
            or bool(found[3]) != self._contributes(member.rank)
        ):
            return False
        self._parts[member.rank] = (member, *found)
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
        self, results: list[Payload] | None, now: float
    ) -> tuple[list[tuple[Peer, bytes]], Payload]:
        """Take in all that is held, and decide the call.

        Args:
            results: What the fold gave, if the call folds.
            now: The time.

        Returns:
            What goes to the others now, and what rank 0's program gets.
        """
        made, roll = self._made, self._calls.roll
        sites = {HUB: made.site}
        for rank, (member, number, ack, site, _) in self._parts.items():
            member.link.take(number, ack)
            member.heard = now
            sites[rank] = str(site, "utf-8", "replace")
        roll.note_all(self.seq, made.operation, made.root, made.tag, sites)
        self._calls.conclude(self.seq)
        self._coordinator.concluded(made.group, roll.ranks)
        self._replica.calling.concluded(made)
        outcome = self._outcome(results)
        frames = []
        for rank, part in self._parts.items():
            frame = self._tell(part[0], outcome.of(rank))
            if frame is not None:
                frames.append(frame)
        return frames, outcome.of(HUB)

    def _outcome(self, results: list[Payload] | None) -> Outcome:
        operation, ranks = self._made.operation, self._calls.roll.ranks
        root = ranks[self._made.root]
        if results is not None:
            return reduced(operation, root, ranks, ranks, results)
        if operation.source is Who.NOBODY:
            return Outcome()
        return forward(operation, root, ranks, self.payloads, {})

    def _tell(self, member: Member, payload: Payload) -> tuple[Peer, bytes] | None:
        """Tell a replica its outcome; None if that has to wait, or comes in chunks."""
        if member.peer is not None and (payload.inline or not payload.parts):
            body = payload.parts[0] if payload.parts else b""
            frame = member.link.send_at_once(self._outcomes, HUB, "", body)
            if frame is not None:
                return member.peer, frame
        made = self._made
        message = Message(
            Kind.OUTCOME, made.operation.code, group=made.group, seq=self.seq
        )
        message.payload = payload
        self._coordinator.post(member, message)
        return None

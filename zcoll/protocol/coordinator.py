"""Rank 0's machine: messages and times in, instructions out.

It ties the table of members to the calls of their groups, and both to messages. The
engine feeds it with what arrives, with the passing of time and with connections
that it found gone, and carries out what :meth:`Coordinator.take` gives it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zcoll.errors import (
    AbortedError,
    ProtocolError,
    ReplicaExitedError,
    ReplicaLostError,
)
from zcoll.protocol.admission import ABSENCE
from zcoll.protocol.decisions import OF_CALLS, Decisions, about
from zcoll.protocol.events import LOCAL, CoordinatorInstruction, Note, Send
from zcoll.protocol.members import State
from zcoll.protocol.membership import Membership, Refusal
from zcoll.protocol.reports import Reports
from zcoll.wire import Kind, Message, OtherVersionError, pack_fields, parse_fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from zcoll.errors import CollectiveError
    from zcoll.payload import Payload
    from zcoll.protocol.events import Identity, Peer, Timing
    from zcoll.protocol.members import Member


class Coordinator:
    """Rank 0's side of a group.

    Args:
        own: Rank 0's identity.
        session: A random number, not 0, that no other group has.
        job: The job's name.
        timing: The times.

    Attributes:
        session: As given.
        ways: What the messages to each connection go by, as PONG tells it: the
            engine knows.
    """

    def __init__(self, own: Identity, session: int, job: str, timing: Timing) -> None:
        self.membership = Membership(own, session, job, timing)
        self.ways: Mapping[Peer, str] = {}
        self._received = 0  # messages that were new
        self.session = session
        self._out: list[CoordinatorInstruction] = [
            Send(Message(Kind.WELCOME, session=session), LOCAL)
        ]
        self._announced = False
        self._ticked: float | None = None
        self.decisions = Decisions(self.membership, self.post, self._out)
        self.reports = Reports(self.membership, self.decisions.groups, self._tell)
        self._farewell: ReplicaExitedError | None = None  # once rank 0 leaves
        self._active: set[int] = set()  # ranks whose links may have something to send
        self._owed: set[int] = set()  # ranks to which chunks are still to be sent

    @property
    def silent(self) -> bool:
        """Whether there is nothing to take."""
        return not (self._out or self._active)

    @property
    def busy(self) -> bool:
        """Whether there will be more to take as acknowledgements arrive."""
        return bool(self._owed)

    def take(self) -> list[CoordinatorInstruction]:
        """Take the instructions that have come up, in order."""
        if self._active:
            self._transmit()
        out = self._out.copy()
        self._out.clear()
        return out

    def _transmit(self) -> None:
        members, session, out = self.membership.members, self.session, self._out
        for rank in sorted(self._active):
            link, peer = members[rank].link, members[rank].peer
            if peer is not None:
                for message in link.transmit():
                    message.session = session
                    out.append(Send(message, peer))
            if link.owes_payloads:
                self._owed.add(rank)
            elif self._owed:
                self._owed.discard(rank)
        self._active.clear()

    def post(self, member: Member, message: Message) -> None:
        """Queue a numbered message for a member that is there."""
        if member.state is State.PRESENT:
            member.link.send(message)
            self._active.add(member.rank)

    def _tell(self, member: Member, message: Message) -> None:
        """Send a message that may get lost."""
        if member.peer is not None:
            message.session, message.ack = self.session, member.link.received
            self._out.append(Send(message, member.peer))

    # --- what arrives -----------------------------------------------------

    def receive(self, peer: Peer, message: Message, now: float) -> None:
        """A message has come from a peer that knows the secret."""
        try:
            if message.number or not self._greet(peer, message, now):
                self._receive(peer, message, now)
        except ProtocolError as error:
            self.misbehaved(peer, error)

    def misbehaved(self, peer: Peer, error: ProtocolError) -> None:
        """A peer sent what is no message, or one that has no place here."""
        member = self.membership.by_peer(peer)
        if isinstance(error, OtherVersionError):
            fields = {"refusal": Refusal.FINAL.value, "reason": str(error)}
            self._out.append(Send(Message(Kind.REJECT, body=pack_fields(fields)), peer))
        if member is None or member.rank == 0:
            self._out.append(Note(f"dropped: {error}", topic="dropped", warning=True))
        elif not self.membership.complete:
            self.membership.forget(peer)
            text = f"dropped {member}: {error}"
            self._out.append(Note(text, topic="dropped", warning=True))
        else:
            self._lose(member, f"sent a message that makes no sense: {error}")

    def _receive(self, peer: Peer, message: Message, now: float) -> None:
        member = self.membership.by_peer(peer)
        if member is None or member.state is not State.PRESENT:
            if (
                message.kind is Kind.BEACON
            ):  # once a second: enough to find its way back
                fields = {"refusal": Refusal.UNKNOWN.value, "reason": "say HELLO first"}
                reject = Message(Kind.REJECT, body=pack_fields(fields))
                self._out.append(Send(reject, peer))
            return
        if message.session != self.session and peer != LOCAL:
            return
        member.heard = now
        if member.contested is not None:
            self.membership.settle(member, now)
            self.announce()
        kind, link = message.kind, member.link
        if message.number or kind is Kind.ACK:
            self._received += 1
        if link.accept(message):
            # A call would count for whoever comes instead of one that is forgotten.
            if kind in OF_CALLS and (self.membership.complete or peer == LOCAL):
                self.decisions.receive(member, message)
            else:
                self._handle(member, message, now)
        if not link.silent:
            self._active.add(member.rank)

    def _greet(self, peer: Peer, message: Message, now: float) -> bool:
        """Answer those who need not be members; tell whether it was one."""
        if message.kind is Kind.HELLO:
            self._hello(peer, message, now)
        elif message.kind is Kind.PING:
            self._out.append(Send(self._pong(message, now), peer))
        else:
            return False
        return True

    def _handle(self, member: Member, message: Message, now: float) -> None:
        kind = message.kind
        if kind in OF_CALLS:
            raise ProtocolError("a call before the group is complete")
        if kind is Kind.BEACON:
            self._tell(member, Message(Kind.BEACON))
        elif kind is Kind.QUERY:
            self.reports.ask(member.rank, message.group, message.seq, now)
        elif kind is Kind.STACK:
            self.reports.told(member.rank, parse_fields(message.body), now)
        elif kind in (Kind.BYE, Kind.ABORT):
            reason = str(parse_fields(message.body).get("reason") or "")
            (self._leave if kind is Kind.BYE else self._abort)(member, reason)
        elif kind is not Kind.ACK:
            raise ProtocolError(f"a replica does not send {kind.name}")

    def _hello(self, peer: Peer, message: Message, now: float) -> None:
        self._out.extend(self.membership.hello(peer, message, now))
        member = self.membership.by_peer(peer)
        if member is not None:
            self._active.add(member.rank)
        self.announce()

    def announce(self) -> None:
        """Tell everybody that the group is complete, once it is."""
        if not self.membership.complete or self._announced:
            return
        self._announced = True
        body = pack_fields({"replicas": self.membership.table()})
        for member in self.membership.members:
            self.post(member, Message(Kind.READY, body=body))

    def concluded(self, group: int, ranks: Sequence[int]) -> None:
        """These have made a call and it is decided; see ``gathering``."""
        self._received += len(ranks)
        self.decisions.concluded(group, ranks)

    def folded(
        self,
        group: int,
        seq: int,
        results: list[Payload] | None,
        error: CollectiveError | None,
    ) -> None:
        """The fold is done with the operands that it was given last."""
        self.decisions.folded(group, seq, results, error)

    # --- those who go -----------------------------------------------------

    def unreachable(self, peer: Peer, now: float) -> None:
        """A send to this peer has found its connection gone."""
        self.membership.unreachable(peer, now)

    def doubt(self, now: float) -> None:
        """Some connection has ended; it may be a member's."""
        self.membership.doubted = now

    def probe(self) -> None:
        """Find out which peer's connection has ended, by sending to all of them."""
        for member in self.membership.members:
            if member.rank:
                self._tell(member, Message(Kind.ACK))
        self._out.extend(self.membership.probe_unranked())

    def tick(self, now: float) -> None:
        """Time has passed."""
        held_up = 0.0 if self._ticked is None else now - self._ticked
        self._ticked = now
        if held_up > ABSENCE:  # nobody could reach a process that was stopped
            self.membership.extend(held_up, now)
        self._out.extend(self.membership.tick(now))
        self.announce()
        self.reports.tick(now)
        for member in self.membership.overdue(now):
            ago = f"{now - member.heard:.1f} s"
            self._lose(member, f"its connection is gone; last heard of {ago} ago")

    def _lose(self, member: Member, why: str) -> None:
        self.membership.dismiss(member, State.LOST)
        last = self.decisions.groups.last_call(member.rank)
        text = f"{member} is lost: {why}; its last call was {last}"
        self._out.append(Note(text, warning=not self.membership.closing))
        self.decisions.stop_all(ReplicaLostError(text, **about(member)))

    def _leave(self, member: Member, reason: str) -> None:
        """A replica exits: the groups that it is in cannot go on."""
        last = self.decisions.groups.last_call(member.rank)
        text = f"{member} exited after {last}" + (f": {reason}" if reason else "")
        error = ReplicaExitedError(text, reason=reason, **about(member))
        if member.rank == 0:
            self._farewell = error
        else:
            self._tell(member, Message(Kind.ACK))
            self.membership.dismiss(member, State.LEFT)
        self.decisions.exit(member.rank, error)

    def hurry(self) -> None:
        """Rank 0 goes without waiting any longer for what others have not called."""
        if self._farewell is not None:
            self.decisions.stop_all(self._farewell)

    def _abort(self, member: Member, reason: str) -> None:
        last = self.decisions.groups.last_call(member.rank)
        text = f"{member} aborted the group after {last}"
        text += f": {reason}" if reason else ""
        error = AbortedError(text, reason=reason, **about(member))
        self.decisions.stop_all(error)

    @property
    def drained(self) -> bool:
        """Whether nothing is left that rank 0 owes anybody."""
        return not self.decisions.serving and all(
            member.link.idle
            for member in self.membership.members
            if member.state is State.PRESENT
        )

    @property
    def progress(self) -> int:
        """A number that grows with everything that is new."""
        return self._received + self.decisions.progress

    # --- what is told to those who ask ------------------------------------

    def _current(self, now: float) -> dict[str, Any] | None:
        """The call that a group is at: the world, if it is in one."""
        for group, calls in self.decisions.groups:
            call = calls.pending()
            if call is not None:
                return {
                    "seq": call.seq,
                    "operation": call.describe(),
                    "group": calls.name,
                    "site": next(iter(call.sites.values()), ""),
                    **self.reports.peek(group, call.seq, now),
                }
        return None

    def _pong(self, ping: Message, now: float) -> Message:
        fields = {
            "package": self.membership.own.package,
            "num_replicas": self.membership.own.num_replicas,
            "replicas": self.membership.table(),
            "unranked": len(self.membership.unranked),
            "complete": self.membership.complete,
            "closing": self.membership.closing,
            "decided": self.decisions.groups.world.decided,
            "ways": {
                str(member.rank): self.ways[member.peer]
                for member in self.membership.members
                if member.peer is not None and member.peer in self.ways
            },
            "call": self._current(now),
        }
        body = pack_fields(fields).ljust(len(ping.body))
        return Message(Kind.PONG, seq=ping.seq, body=body)

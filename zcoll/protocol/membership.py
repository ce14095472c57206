"""Who is in the group: rank 0's table of its members."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from zcoll.errors import ProtocolError
from zcoll.protocol.events import LOCAL, Identity, Note, Peer, Send, Timing
from zcoll.protocol.identities import MAX_NAME, read_identity
from zcoll.protocol.link import Link, LocalLink
from zcoll.protocol.members import Member, State
from zcoll.protocol.unranked import Unranked
from zcoll.wire import AUTO_RANK, Kind, Message, pack_fields, parse_fields

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

# Seconds in which the end of a process shows, and what it had sent before arrives.
LAST_WORDS = 0.25
MAX_HELLO = 64 * 1024  # bytes that are read of somebody who has not been admitted


class Refusal(enum.Enum):
    """What a refused replica can do about it; travels in REJECT."""

    FINAL = "final"  # nothing
    LOST = "lost"  # nothing: it was given up, and the group went on without it
    TAKEN = "taken"  # its rank is held by somebody who may be dead: ask again, briefly
    CLOSING = "closing"  # an earlier group is ending here: ask again
    UNKNOWN = "unknown"  # rank 0 does not know this connection: say HELLO again


class Membership:
    """Admits replicas, lets them resume, and notices those that are gone.

    Args:
        own: Rank 0's identity; the others must agree on ``num_replicas``.
        session: The group's random number.
        job: The job's name; replicas of another job are refused.
        timing: The times.

    Attributes:
        session: As given; so are ``own``, ``job`` and ``timing``.
        complete: Whether every rank has come.
        doubted: When a connection has ended, and it is not known yet whose.
        closing: Whether the group has ended.
        members: One for each rank.
        unranked: Those who wait for a rank.
    """

    def __init__(self, own: Identity, session: int, job: str, timing: Timing) -> None:
        self.own = own
        self.session = session
        self.job = job
        self.timing = timing
        self.doubted: float | None = None
        self.closing = False
        self.unranked = Unranked()
        self.members = [
            Member(rank, Link(grants=False)) for rank in range(own.num_replicas)
        ]
        local = self.members[0]
        local.link = LocalLink()
        local.state, local.peer, local.identity = State.PRESENT, LOCAL, own
        self.complete = len(self.members) == 1
        self._peers: dict[Peer, Member] = {LOCAL: local}
        self._full_since: float | None = None
        self._last_waiting = 0.0

    def by_peer(self, peer: Peer) -> Member | None:
        """The member at this connection."""
        return self._peers.get(peer)

    @property
    def peers(self) -> AbstractSet[Peer]:
        """The connections at which members are."""
        return self._peers.keys()

    @property
    def absent(self) -> list[int]:
        """The ranks that nobody has come for yet, if the lowest are given first.

        Those whose holders may be dead are among them.
        """
        contested = [m.rank for m in self.members if m.contested is not None]
        return sorted(self.ranks(State.ABSENT)[len(self.unranked) :] + contested)

    def ranks(self, *states: State) -> list[int]:
        """The ranks in any of these states."""
        return [member.rank for member in self.members if member.state in states]

    # --- admission --------------------------------------------------------

    def hello(self, peer: Peer, message: Message, now: float) -> Iterator[Send | Note]:
        """Admit the sender of a HELLO, let it resume, or refuse it.

        Raises:
            ProtocolError: The HELLO is none.
        """
        if len(message.body) > MAX_HELLO:
            raise ProtocolError(f"a HELLO of {len(message.body)} bytes")
        fields = parse_fields(message.body)
        identity = read_identity(fields)
        refusal = self._objection(identity, fields)
        if refusal is not None:
            yield from self._reject(peer, identity, *refusal)
            return
        if identity.rank == AUTO_RANK:
            rank = self._rank_given(identity)
            if rank is None:
                yield from self._ask_for_rank(identity, peer, now)
                return
            identity = identity._replace(rank=rank)
        member = self.members[identity.rank]
        if member.identity is not None and member.identity != identity:
            if not self.complete and member.peer is not None:
                if member.contested is None:
                    member.contested = now
                yield Send(self._waiting(), member.peer)  # finds out whether it lives
            kind = Refusal.CLOSING if self.closing else Refusal.TAKEN
            reason = f"rank {identity.rank} is taken by {member}"
            yield from self._reject(peer, identity, kind, reason)
            return
        if member.state is State.LEFT:  # its BYE has arrived, the answer has not
            yield self._welcome(member, peer)
            return
        if member.state is State.LOST:
            reason = "it was given up, after its connection had been down for too long"
            yield from self._reject(peer, identity, Refusal.LOST, reason)
            return
        yield from self._admit(member, identity, peer, message.ack, now)
        yield from self._give_ranks(now)

    def _rank_given(self, identity: Identity) -> int | None:
        """The rank that this incarnation has got already."""
        for member in self.members:
            known = member.identity
            if known is not None and known.incarnation == identity.incarnation:
                return member.rank
        return None

    def _ask_for_rank(
        self, identity: Identity, peer: Peer, now: float
    ) -> Iterator[Send | Note]:
        """One has come that was told no rank: it waits until all are there."""
        if self.complete:
            kind = Refusal.CLOSING if self.closing else Refusal.TAKEN
            reason = f"all {len(self.members)} ranks are taken"
            yield from self._reject(peer, identity, kind, reason)
            return
        self.unranked.add(peer, identity)
        yield from self._give_ranks(now)

    def _give_ranks(self, now: float) -> Iterator[Send | Note]:
        """Admit those without a rank, once they are as many as the free ranks."""
        free = self.ranks(State.ABSENT)
        if len(self.unranked) == len(free):
            for peer, identity in self.unranked.give(free):
                yield from self._admit(
                    self.members[identity.rank], identity, peer, 0, now
                )

    def _objection(
        self, identity: Identity, fields: dict[str, Any]
    ) -> tuple[Refusal, str] | None:
        own = self.own.num_replicas
        if fields.get("job") != self.job:
            return Refusal.FINAL, (
                "it belongs to another job that uses the same address: its job is "
                f"{_quote(fields.get('job'))}, here it is {_quote(self.job)}. If they "
                "are one job, set ZCOLL_JOB_ID to the same on every replica"
            )
        if identity.num_replicas != own:
            return Refusal.FINAL, (
                f"rank 0 was told num_replicas={own}, {identity.name} "
                f"num_replicas={identity.num_replicas}: they must agree"
            )
        if identity.rank == 0:
            return Refusal.FINAL, f"rank 0 is taken by {self.members[0]}"
        if identity.rank != AUTO_RANK and not 0 < identity.rank < own:
            return Refusal.FINAL, f"rank {identity.rank} is not in 0..{own - 1}"
        if fields.get("session") not in (0, self.session):
            return Refusal.FINAL, "its group has ended: rank 0 was started again"
        return None

    def _admit(
        self, member: Member, identity: Identity, peer: Peer, received: int, now: float
    ) -> Iterator[Send | Note]:
        if member.peer is not None:
            self._peers.pop(member.peer, None)
        arrived = member.state is State.ABSENT
        member.state, member.identity, member.peer = State.PRESENT, identity, peer
        member.heard, member.cut = now, None
        self._peers[peer] = member
        member.link.resume(received)
        yield self._welcome(member, peer)
        if not arrived:
            yield Note(f"{member} is connected again")
        else:
            self._fill(now)

    def _fill(self, now: float) -> None:
        """The group is complete once all are there, each beyond doubt.

        Strangers come and go too, so doubt lasts no longer than this.
        """
        if self.complete or self.absent or self.unranked:
            self._full_since = None
            return
        if self._full_since is None:
            self._full_since = now
        doubted = self.doubted is not None and now - self.doubted < LAST_WORDS
        self.complete = not doubted or now - self._full_since >= LAST_WORDS

    def settle(self, member: Member, now: float) -> None:
        """A member has given a sign of life: whose rank was contested keeps it.

        What a dead one had sent before may still arrive a moment later.
        """
        if member.contested is not None and now - member.contested >= LAST_WORDS:
            member.contested = None
            self._fill(now)

    def _welcome(self, member: Member, peer: Peer) -> Send:
        welcome = Message(Kind.WELCOME, rank=member.rank, session=self.session)
        welcome.ack = member.link.received
        return Send(welcome, peer)

    def _reject(
        self, peer: Peer, identity: Identity, kind: Refusal, reason: str
    ) -> Iterator[Send | Note]:
        fields = {"refusal": kind.value, "reason": reason}
        yield Send(Message(Kind.REJECT, body=pack_fields(fields)), peer)
        if kind is not Refusal.CLOSING:
            who = f"{identity.name} ({identity.host}, pid {identity.pid})"
            yield Note(f"refused {who}: {reason}", topic="refused", warning=True)

    # --- presence ---------------------------------------------------------

    def unreachable(self, peer: Peer, now: float) -> None:
        """This connection is gone, as a send has found."""
        self.unranked.drop(peer)
        member = self._peers.get(peer)
        if member is None:
            return
        if self.complete:
            del self._peers[peer]
            member.peer = None
            member.link.suspend()
            member.cut = now
        else:
            self.forget(peer)

    def forget(self, peer: Peer) -> None:
        """While the group gathers, somebody else may come in a member's place."""
        rank = self._peers.pop(peer).rank
        self.members[rank] = Member(rank, Link(grants=False))

    def dismiss(self, member: Member, state: State) -> None:
        """The member has left or is given up: nothing more is sent to it."""
        member.state = state
        member.link.close()

    def extend(self, seconds: float, now: float) -> None:
        """Rank 0 was held up until now: others get that time to come back."""
        for member in self.members:
            if member.cut is not None:
                member.cut = min(member.cut + seconds, now)

    def overdue(self, now: float) -> list[Member]:
        """Members whose connection has been down for longer than the window."""
        return [
            member
            for member in self.members
            if member.state is State.PRESENT
            and member.cut is not None
            and now - member.cut >= self.timing.reconnect_window
        ]

    def tick(self, now: float) -> Iterator[Send]:
        """Tell those who are there, once a second, whom they are waiting for.

        The message also finds connections that are gone.
        """
        if not self.complete:
            self._fill(now)
        if self.complete or now - self._last_waiting < self.timing.beacon_interval:
            return
        self._last_waiting = now
        for member in self.members[1:]:
            if member.peer is not None:
                yield Send(self._waiting(), member.peer)
        yield from self.probe_unranked()

    def probe_unranked(self) -> Iterator[Send]:
        """Tell those without a rank the same; they are in no session as yet."""
        for peer in self.unranked:
            waiting = self._waiting()
            waiting.session = 0
            yield Send(waiting, peer)

    def _waiting(self) -> Message:
        fields = {"missing": self.absent}
        return Message(Kind.WAITING, session=self.session, body=pack_fields(fields))

    def table(self) -> list[dict[str, Any]]:
        """Who is there, as READY and PONG tell it."""
        return [
            {
                "rank": member.rank,
                "host": member.identity.host,
                "pid": member.identity.pid,
                "package": member.identity.package,
            }
            for member in self.members
            if member.identity is not None and member.state is State.PRESENT
        ]


def _quote(job: object) -> str:
    return repr(str(job)[:MAX_NAME]) if job else "not named"

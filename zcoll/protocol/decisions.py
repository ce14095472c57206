"""What calls come to: rank 0's groups, and what it tells their members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zcoll.errors import ClosedError, CollectiveError, ReplicaExitedError
from zcoll.payload import Payload
from zcoll.protocol.events import HUB, WORLD, Fold, Forget
from zcoll.protocol.failures import to_fields
from zcoll.protocol.groups import Groups
from zcoll.protocol.members import State
from zcoll.protocol.outcomes import Outcome
from zcoll.protocol.plans import plan_groups
from zcoll.protocol.steps import Decide, End, FoldNext, Grant
from zcoll.wire import Kind, Message, pack_fields, parse_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from zcoll.errors import GroupError
    from zcoll.protocol.calls import Calls
    from zcoll.protocol.events import CoordinatorInstruction
    from zcoll.protocol.members import Member
    from zcoll.protocol.membership import Membership
    from zcoll.protocol.steps import Step

# What replicas send of their calls.
OF_CALLS = (Kind.CONTRIBUTE, Kind.CHUNK, Kind.FUNCTION, Kind.LEAVE, Kind.CLOSE)


class Decisions:
    """Takes in what members call, and carries out what comes of it.

    Args:
        membership: Who is there.
        post: Queues a numbered message for a member.
        out: Where instructions go.

    Attributes:
        groups: The groups, with their calls.
        progress: Grows with everything that is decided.
    """

    def __init__(
        self,
        membership: Membership,
        post: Callable[[Member, Message], None],
        out: list[CoordinatorInstruction],
    ) -> None:
        self.groups = Groups(len(membership.members))
        self.progress = 0
        self._exits: dict[int, GroupError] = {}  # of replicas that are gone
        self._membership = membership
        self._post = post
        self._out = out

    def receive(self, member: Member, message: Message) -> None:
        """Take in a message that is about calls.

        Raises:
            ProtocolError: It has no place in its group.
        """
        calls = self.groups.of(member.rank, message)
        if calls is None:
            # Nobody will grant the chunks of a call in a group that is forgotten.
            member.link.discard(message.group, message.seq)
            return
        kind, rank, group = message.kind, member.rank, message.group
        if kind is Kind.CONTRIBUTE:
            steps = calls.contribute(rank, message)
            if steps:
                self._carry_out(group, calls, steps)
            if calls.limit is not None:  # it may have come too late to count
                member.link.discard_after(group, calls.limit)
        elif kind is Kind.CHUNK:
            if message.payload is not None:
                steps = calls.complete(rank, message.seq, message.payload)
                self._carry_out(group, calls, steps)
        elif kind is Kind.FUNCTION:
            self._carry_out(group, calls, calls.equip(rank, message))
        elif kind is Kind.LEAVE:
            self._carry_out(group, calls, calls.leave(rank))
        else:
            reason = str(parse_fields(message.body).get("reason") or "")
            self._close(member, group, calls, reason)

    def concluded(self, group: int, ranks: Iterable[int]) -> None:
        """These have made a call of a group, and it is decided."""
        self.progress += 1
        self.groups.called(group, ranks)

    def folded(
        self,
        group: int,
        seq: int,
        results: list[Payload] | None,
        error: CollectiveError | None,
    ) -> None:
        """The fold is done with the operands that it was given last."""
        self.progress += 1
        calls = self.groups.find(group)
        if calls is not None:
            self._carry_out(group, calls, calls.folded(seq, results, error))

    # --- what the calls come to -------------------------------------------

    def _carry_out(self, group: int, calls: Calls, steps: Iterable[Step]) -> None:
        for step in steps:
            if isinstance(step, Decide):
                self._decide(group, calls, step)
            elif isinstance(step, FoldNext):
                self._out.append(Fold(group, step.call, step.operands, step.last))
            elif isinstance(step, End):
                self._end(group, calls, step)
                if step.error is calls.mismatch:  # out of step below, too
                    for below in self.groups.below(group)[1:]:
                        self.stop(below, step.error)
            else:
                kind = Kind.GRANT if isinstance(step, Grant) else Kind.FETCH
                member = self._membership.members[step.rank]
                self._post(member, Message(kind, group=group, seq=step.seq))
        if calls.torn_down or calls.roll.closed:
            self._release(group, calls)

    def _decide(self, group: int, calls: Calls, step: Decide) -> None:
        operation, seq = step.call.operation, step.call.seq
        self.progress += 1
        made = []
        if operation.makes is not None and step.error is None:
            made = self._make_groups(group, calls, step)
        if operation.ends:
            self._end_below(group, calls, seq)
        left = {} if operation.ends else calls.roll.left
        for rank in calls.roll.ranks:
            if not left or left.get(rank, seq) >= seq:
                self._deliver(self._membership.members[rank], group, step)
        if operation.ends:
            self._membership.closing |= group == WORLD
        for number in made:
            self._catch_up(number, calls)

    def _deliver(self, member: Member, group: int, step: Decide) -> None:
        """Tell a member how a call has ended."""
        call, error = step.call, step.error
        member.link.discard(group, call.seq)
        if step.active is not None:
            body = pack_fields({"active": step.active})
            news = Message(Kind.ACTIVE, group=group, seq=call.seq, body=body)
            self._post(member, news)
        if error is None:
            message = Message(
                Kind.OUTCOME, call.operation.code, group=group, seq=call.seq
            )
            message.payload = step.outcome.of(member.rank)
        else:
            message = Message(
                Kind.FAILURE, call.operation.code, group=group, seq=call.seq
            )
            message.body = pack_fields(to_fields(error))
        self._post(member, message)

    def _end_below(self, group: int, calls: Calls, seq: int) -> None:
        """A group is torn down: those made of it end with what everybody has called."""
        name = f"group {calls.name!r}" if calls.name else "the group"
        error = ClosedError(f"{name} was torn down by call {seq}", group=calls.name)
        for number in self.groups.below(group)[1:]:
            below = self.groups.find(number)
            if below is not None:
                below.torn_down = True
                self.stop(number, error, below.made)
                self._release(number, below)

    def _make_groups(self, group: int, calls: Calls, step: Decide) -> list[int]:
        """Make the groups that a call asks for; each member gets its own."""
        try:
            plans = plan_groups(step.call, calls.name, calls.roll)
        except CollectiveError as error:
            error.group = calls.name
            step.error = error
            return []
        told: dict[int, dict[str, Any]]
        told = {rank: {"group": None} for rank in calls.roll.ranks}
        made = []
        for plan in plans:
            number = self.groups.make(group, plan)
            fields = {"group": number, "name": plan.name, "ranks": plan.ranks}
            told |= dict.fromkeys(plan.ranks, fields)
            made.append(number)
        step.outcome = Outcome(
            own={
                rank: Payload([pack_fields(fields)], stable=True)
                for rank, fields in told.items()
            }
        )
        return made

    def _catch_up(self, group: int, parent: Calls) -> None:
        """End a new group that has come too late: its members know of it by now."""
        if parent.mismatch is not None:
            self.stop(group, parent.mismatch)
        for rank, error in self._exits.items():
            self._exit(rank, error, group)

    def _end(self, group: int, calls: Calls, step: End) -> None:
        """Tell the members of a group that it is over."""
        self._membership.closing |= group == WORLD
        body = pack_fields({**to_fields(step.error), "after": step.after})
        for rank in calls.roll.ranks:
            member = self._membership.members[rank]
            member.link.discard_after(group, step.after)
            self._post(member, Message(Kind.OVER, group=group, body=body))

    def stop(self, group: int, error: GroupError, after: int | None = None) -> None:
        """End a group after this call; after what is decided, if none is given."""
        calls = self.groups.find(group)
        if calls is not None:
            for step in calls.end(error, calls.decided if after is None else after):
                self._end(group, calls, step)

    def exit(self, rank: int, error: GroupError) -> None:
        """A replica is gone: the groups in which it makes calls cannot go on."""
        self._exits[rank] = error
        for group, _ in self.groups:
            self._exit(rank, error, group)

    def _exit(self, rank: int, error: GroupError, group: int) -> None:
        calls = self.groups.find(group)
        if calls is not None and rank in calls.roll:
            for step in calls.exit(rank, error):
                self._end(group, calls, step)

    def stop_all(self, error: GroupError) -> None:
        """The session is over: nothing more is decided in any group."""
        for group, _ in self.groups:
            self.stop(group, error)

    def _close(self, member: Member, group: int, calls: Calls, reason: str) -> None:
        """A replica releases a group; the others cannot call it there any more."""
        rank, roll = member.rank, calls.roll
        roll.closed.add(rank)
        if rank not in roll.left:
            text = f"{member} has closed group {calls.name!r} after "
            text += roll.last_call(rank, "") + (f": {reason}" if reason else "")
            error = ReplicaExitedError(text, reason=reason, **about(member))
            self.stop(group, error, roll.last(rank))
        self._release(group, calls)

    def _release(self, group: int, calls: Calls) -> None:
        """Forget a group once it is released or torn down, and nothing is under way."""
        closed = calls.roll.closed
        released = closed and closed.issuperset(calls.roll.ranks)
        if (calls.torn_down or released) and not calls.open:
            self.groups.forget(group)
            self._out.append(Forget(group))

    @property
    def serving(self) -> bool:
        """Whether calls may still be decided that rank 0 does not wait for itself."""
        return any(self._users(calls) for _, calls in self.groups)

    @property
    def users(self) -> list[int]:
        """The ranks, other than 0, whose calls may still be decided."""
        found = {rank for _, calls in self.groups for rank in self._users(calls)}
        return sorted(found - {HUB})

    def _users(self, calls: Calls) -> list[int]:
        """Whose calls in a group may still be decided without a new one of rank 0."""
        roll, members = calls.roll, self._membership.members
        if HUB in roll and HUB not in roll.left:
            return roll.ranks if calls.undecided(HUB) else []
        more = calls.limit is None or calls.decided < calls.limit
        return [
            rank
            for rank in roll.ranks
            if members[rank].state is State.PRESENT
            and (calls.undecided(rank) if roll.is_done(rank) else more)
        ]


def about(member: Member) -> dict[str, Any]:
    """Whom an error is about, as its fields."""
    identity = member.identity
    host, pid = ("", 0) if identity is None else (identity.host, identity.pid)
    return {"rank": member.rank, "host": host, "pid": pid}

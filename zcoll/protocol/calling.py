"""A replica's calls in all its groups: how they are made, and how they end."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from zcoll.errors import ClosedError, CollectiveError, GroupError, ProtocolError
from zcoll.operations import by_code
from zcoll.payload import EMPTY, Payload
from zcoll.protocol.events import WORLD, Deliver, Fail, TellFunction
from zcoll.protocol.failures import from_fields, shorten, to_fields
from zcoll.protocol.pending import Pending
from zcoll.wire import Common, Flag, Kind, Message, pack_fields, parse_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zcoll.payload import Buffer
    from zcoll.protocol.events import Contribution, ReplicaInstruction
    from zcoll.protocol.link import Link

# What rank 0 sends of calls.
OF_CALLS = (
    *(Kind.OUTCOME, Kind.CHUNK, Kind.GRANT, Kind.FAILURE, Kind.ACTIVE, Kind.FETCH),
    Kind.OVER,
)


class Calling:
    """The calls that this replica makes.

    Args:
        size: How many replicas there are.
        link: Its end of the connection to rank 0.
        out: Where instructions go.

    Attributes:
        torn_down: Whether the world has ended by a call.
    """

    def __init__(self, size: int, link: Link, out: list[ReplicaInstruction]) -> None:
        self.torn_down = False
        self._link = link
        self._out = out
        self._asked: set[tuple[int, int]] = set()  # calls whose functions rank 0 awaits
        self._expected = Common(Kind.OUTCOME, 0, 0, 0, 0, 0)  # see call_at_once
        self._groups = {WORLD: Pending(WORLD, "", list(range(size)))}

    # --- what the program asks for ----------------------------------------

    def call(self, made: Contribution) -> int:
        """Make the next call of a group; give its number.

        Raises:
            ClosedError: This replica has left or closed the group.
        """
        pending = self._groups.get(made.group)
        if pending is None or pending.closed:
            raise ClosedError("this replica has closed the group meanwhile")
        if pending.left:
            raise ClosedError("this replica has left the group meanwhile")
        pending.seq += 1
        seq = pending.seq
        over = pending.end_of(seq)
        if over is not None:
            self._out.append(Fail(made.group, seq, over))
            return seq
        # fmt: off
        message = Message(Kind.CONTRIBUTE, made.operation.code, root=made.root,
                          group=made.group, seq=seq, site=made.site, tag=made.tag)
        # fmt: on
        if made.error is not None:
            made.error.seq, made.error.group = seq, pending.name
            message.flags = Flag.POISONED
            message.body = pack_fields(to_fields(made.error))
        else:
            message.payload = made.payload
        pending.add(seq, made.operation, made.site)
        self._link.send(message)
        if made.function is not None:
            self.equip(made.group, seq, made.function)
        return seq

    def call_at_once(
        self, made: Contribution, rank: int, session: int
    ) -> tuple[int, bytes] | None:
        """Make the next call of a group, if it is small and nothing else goes on there.

        Returns:
            Its number, and the frame that the caller puts on the wire; None if it
            must be made by :meth:`call`.
        """
        pending, payload, operation = (
            self._groups.get(made.group),
            made.payload,
            made.operation,
        )
        if (
            pending is None
            or not pending.quiet
            or not (payload is None or payload.inline)
            or made.error is not None
            or made.function is not None
            or operation.ends
            or operation.makes is not None
        ):
            return None
        seq = pending.seq + 1
        call = operation.code, made.root, session, made.group, seq, made.tag
        common = Common(Kind.CONTRIBUTE, *call)
        body = b"" if payload is None else payload.parts[0]
        frame = self._link.send_at_once(common, rank, made.site, body)
        if frame is None:
            return None
        self._expected = Common(
            Kind.OUTCOME, operation.code, 0, session, made.group, seq
        )
        pending.seq = seq
        pending.add(seq, operation, made.site)
        return seq, frame

    def end_at_once(self, group: int, frames: Sequence[Buffer]) -> Payload | None:
        """Take in an outcome, if it is that of the last call of :meth:`call_at_once`.

        Returns:
            The outcome; None if it is anything else, and nothing has been changed.
        """
        found = self._expected.parse(frames)
        if found is None or not self._link.expects(found[0], found[1]):
            return None
        number, ack, _, body = found
        self._link.take(number, ack)
        pending = self._groups[group]
        pending.decide(pending.seq)
        return Payload([body], True) if body else EMPTY

    def quiet(self, group: int) -> bool:
        """Whether all calls of a group have ended, and more may be made."""
        pending = self._groups.get(group)
        return pending is not None and pending.quiet

    def concluded(self, made: Contribution) -> None:
        """Rank 0's own call has been made and has ended; see ``gathering``."""
        self._groups[made.group].conclude(made.operation, made.site)

    def equip(self, group: int, seq: int, function: Buffer | CollectiveError) -> None:
        """Send the pickled reduce function of a call, or why it cannot be sent."""
        self._asked.discard((group, seq))
        message = Message(Kind.FUNCTION, group=group, seq=seq)
        if isinstance(function, CollectiveError):
            message.flags = Flag.POISONED
            message.body = pack_fields(to_fields(function))
        else:
            message.body = function
        self._link.send(message)

    @property
    def owes_functions(self) -> bool:
        """Whether rank 0 still waits for the reduce function of a call."""
        return bool(self._asked)

    def withdraw_functions(self) -> None:
        """No function is sent any more that has not gone."""
        self._asked.clear()

    def leave(self, group: int) -> None:
        """Make no more calls in a group; the others go on. Again, it does nothing."""
        pending = self._groups.get(group)
        if pending is not None and not (pending.left or pending.closed):
            pending.left = True
            self._link.send(Message(Kind.LEAVE, group=group, seq=pending.seq))

    def close(self, group: int, reason: str = "") -> None:
        """Make no more calls in a group, and forget it."""
        pending = self._groups[group]
        pending.closed = True
        body = pack_fields({"reason": shorten(reason)})
        self._link.send(Message(Kind.CLOSE, group=group, seq=pending.seq, body=body))
        self._forget(pending)

    def active(self, group: int) -> list[int]:
        """Who still makes calls in a group; nobody, if it is released."""
        pending = self._groups.get(group)
        return [] if pending is None else list(pending.active)

    def over(self, group: int) -> bool:
        """Whether a group has ended, or is released."""
        pending = self._groups.get(group)
        return pending is None or pending.over

    def __contains__(self, group: int) -> bool:
        """Whether something is still kept of a group."""
        return group in self._groups

    def __len__(self) -> int:
        """How many calls have not ended."""
        return sum(map(len, self._groups.values()))

    def __str__(self) -> str:
        """The first call that has not ended, for people."""
        return next(filter(None, map(str, self._groups.values())), "")

    @property
    def last_decided(self) -> str:
        """The last call of the world that rank 0 has decided, for people."""
        return self._groups[WORLD].last_decided

    # --- what arrives -----------------------------------------------------

    def receive(self, message: Message) -> None:
        """Take in what rank 0 says of calls: one of ``OF_CALLS``."""
        pending = self._groups.get(message.group)
        if pending is None:
            return  # this replica has released the group
        kind, seq = message.kind, message.seq
        if kind is Kind.OUTCOME:
            self._take_outcome(pending, message)
        elif kind is Kind.CHUNK:
            self._deliver(pending, seq, message.payload)
        elif kind is Kind.GRANT:
            self._link.grant(message.group, seq)
        elif kind is Kind.FAILURE:
            self._fail(pending, message)
        elif kind is Kind.ACTIVE:
            pending.active = _read_active(parse_fields(message.body))
        elif kind is Kind.FETCH:
            if seq in pending:
                self._asked.add((message.group, seq))
            self._out.append(TellFunction(message.group, seq))
        else:
            self._end(pending, parse_fields(message.body))

    def _take_outcome(self, pending: Pending, message: Message) -> None:
        self._withdraw(message.group, message.seq)
        if by_code(message.operation).ends:
            self._tear_down(pending, message.seq)
        if not message.flags & Flag.CHUNKED:
            self._deliver(pending, message.seq, message.payload)

    def _begin(self, fields: dict[str, Any]) -> None:
        """A group has been made of another one."""
        number, name, ranks = read_group(fields)
        if number is not None and ranks:
            self._groups[number] = Pending(number, name, ranks)

    def _deliver(self, pending: Pending, seq: int, payload: Payload | None) -> None:
        value = payload if payload is not None and payload.parts else None
        if value is not None and pending.makes_groups(seq):
            self._begin(parse_fields(value.parts[0]))  # it may make no sense
        if pending.decide(seq) is not None:
            self._out.append(Deliver(pending.group, seq, value))
            self._forget(pending)

    def _withdraw(self, group: int, seq: int) -> None:
        """A call has ended: what is left of this replica's part is not needed."""
        self._link.withdraw(group, seq)
        self._asked.discard((group, seq))

    def _fail(self, pending: Pending, message: Message) -> None:
        self._withdraw(message.group, message.seq)
        error = from_fields(parse_fields(message.body))
        if not isinstance(error, CollectiveError):
            raise ProtocolError("a failure with an error of the group")
        call = pending.decide(message.seq)
        if call is not None:  # each replica names its own line
            error.op, error.seq, error.site = call[0].name, message.seq, call[1]
            self._out.append(Fail(pending.group, message.seq, error))
            self._forget(pending)

    # --- endings ----------------------------------------------------------

    def _end(self, pending: Pending, fields: dict[str, Any]) -> None:
        error, after = from_fields(fields), fields.get("after")
        if type(after) is not int or not isinstance(error, GroupError):
            raise ProtocolError("an end of the group without its last call")
        self._drop_after(pending, after, error)

    def end_all(self, error: GroupError) -> None:
        """Nothing more will be decided in any group."""
        for pending in list(self._groups.values()):
            self._drop_after(pending, 0, error)

    def _tear_down(self, pending: Pending, seq: int) -> None:
        """Everybody has torn a group down: later calls of this replica end."""
        self.torn_down |= pending.group == WORLD
        name = f"group {pending.name!r}" if pending.name else "the group"
        error = ClosedError(f"{name} was torn down by call {seq}", group=pending.name)
        self._drop_after(pending, seq, error)

    def _drop_after(self, pending: Pending, after: int, error: GroupError) -> None:
        """Every later call ends with this error."""
        error = copy.copy(error)
        error.group = pending.name
        for seq in pending.end(after, error):
            pending.drop(seq)
            self._withdraw(pending.group, seq)
            self._out.append(Fail(pending.group, seq, error))
        self._forget(pending)

    def _forget(self, pending: Pending) -> None:
        """Keep nothing of a group that is released, once its calls have ended."""
        if pending.closed and not pending:
            self._groups.pop(pending.group, None)


def read_group(fields: dict[str, Any]) -> tuple[int | None, str, list[int]]:
    """Read what a replica is told of a group that has been made.

    Returns:
        Its number, its name, and its members' ranks in the world; None, if this
        replica is in no new group.

    Raises:
        ProtocolError: It is not told that.
    """
    number, name, ranks = fields.get("group"), fields.get("name"), fields.get("ranks")
    if number is None:
        return None, "", []
    if type(number) is not int or not isinstance(name, str):
        raise ProtocolError(f"a group numbered {number!r:.80} and named {name!r:.80}")
    if not isinstance(ranks, list) or not all(type(rank) is int for rank in ranks):
        raise ProtocolError(f"a group of ranks {ranks!r:.80}")
    return number, name, ranks


def _read_active(fields: dict[str, Any]) -> list[int]:
    active = fields.get("active")
    if not isinstance(active, list) or not all(type(rank) is int for rank in active):
        raise ProtocolError(f"active ranks that are {active!r:.80}")
    return active

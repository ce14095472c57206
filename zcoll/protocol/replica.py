"""A replica's machine: calls, messages and times in, instructions out.

Every replica has one, rank 0 too; rank 0's is joined to the coordinator by a
:class:`~zcoll.protocol.link.LocalLink`. It numbers the calls, gets the replica
into the group and back into it after a reconnect, and says how each call ended.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from zcoll.errors import (
    ClosedError,
    CollectiveError,
    GroupError,
    ProtocolError,
    RejectedError,
    ReplicaLostError,
)
from zcoll.operations import by_code
from zcoll.protocol.admission import Admission
from zcoll.protocol.events import (
    Deliver,
    Fail,
    Joined,
    Note,
    Refused,
    ReplicaInstruction,
    Send,
    TellStack,
)
from zcoll.protocol.failures import from_fields, shorten, to_fields
from zcoll.protocol.identities import read_table
from zcoll.protocol.membership import Refusal
from zcoll.protocol.pending import Pending
from zcoll.protocol.reports import read_ranks, read_report
from zcoll.wire import Flag, Kind, Message, pack_fields, parse_fields

if TYPE_CHECKING:
    from zcoll.operations import Operation
    from zcoll.protocol.events import Identity, Timing
    from zcoll.protocol.link import Link
    from zcoll.wire import Payload


class Phase(enum.Enum):
    """How far a replica is."""

    JOINING = "joining"
    JOINED = "joined"
    LEAVING = "leaving"
    CLOSED = "closed"


class Replica:
    """One replica's side of a group.

    Args:
        identity: Who it is.
        job: The job's name.
        timing: The times.
        link: This end of the connection to rank 0.
    """

    def __init__(
        self, identity: Identity, job: str, timing: Timing, link: Link
    ) -> None:
        self.phase = Phase.JOINING
        self.waiting_for = [0]  # who is missing, as far as it is known, while joining
        self.heard = 0.0  # when something last came from rank 0
        self._link = link
        self._admission = Admission(identity, job, timing, link)
        self._table: dict[int, tuple[str, int]] = {}  # rank -> host, pid
        self._pending = Pending()
        self._out: list[ReplicaInstruction] = []
        self._failed = False  # by an error of the group
        self._ended = False  # by a call after which there is none
        self._farewell: Message | None = None  # goes when every payload has gone

    def take(self) -> list[ReplicaInstruction]:
        """Take the instructions that have come up, in order."""
        self._transmit()
        if self._farewell is not None and not self._link.owes_payloads:
            self._link.send(self._farewell)
            self._farewell = None
            self._transmit()
        out, self._out = self._out, []
        return out

    def _transmit(self) -> None:
        for message in self._link.transmit():
            message.rank = self.identity.rank
            message.session = self._admission.session
            self._out.append(Send(message))

    # --- what the program asks for ----------------------------------------

    def call(
        self,
        operation: Operation,
        root: int,
        site: str,
        payload: Payload | None,
        error: CollectiveError | None = None,
    ) -> int:
        """Make the next call.

        Args:
            operation: What is called.
            root: Its root.
            site: The user's line that calls it.
            payload: This replica's part, if it has one.
            error: Why it could not be encoded, instead of a payload.

        Returns:
            The call's number.
        """
        self._pending.seq += 1
        seq = self._pending.seq
        over = self._pending.end_of(seq)
        if over is not None:
            self._out.append(Fail(0, seq, over))
            return seq
        message = Message(
            Kind.CONTRIBUTE, operation=operation.code, root=root, seq=seq, site=site
        )
        if error is not None:
            error.seq = seq
            message.flags = Flag.POISONED
            message.body = pack_fields(to_fields(error))
        else:
            message.payload = payload
        self._pending.add(seq, operation.name, site)
        self._link.send(message)
        return seq

    def ask(self, seq: int) -> None:
        """Ask rank 0 who is missing in a call."""
        self._tell(Message(Kind.QUERY, seq=seq))

    def tell(self, where: str, stack: str, seconds: float) -> None:
        """Tell rank 0 where this replica's program is.

        Args:
            where: Its line of user code.
            stack: The whole stack of its main thread.
            seconds: Since when it has made or got no call.
        """
        fields = {
            "waiting": str(self._pending),
            "where": where,
            "stack": stack,
            "seconds": seconds,
        }
        self._tell(Message(Kind.STACK, body=pack_fields(fields)))

    def abort(self, reason: str) -> None:
        """End the group on every replica."""
        if self.phase is Phase.JOINED:
            self._link.send(
                Message(Kind.ABORT, body=pack_fields({"reason": shorten(reason)}))
            )

    def leave(self, reason: str) -> None:
        """Leave the group; what was sent before still counts.

        Rank 0 hears of it after the last payload that it has granted; or at once,
        if this is said a second time, and then calls whose payloads have not gone
        do not count.
        """
        if self.phase is Phase.JOINED:
            self._farewell = Message(
                Kind.BYE, body=pack_fields({"reason": shorten(reason)})
            )
            self.phase = Phase.LEAVING
        elif self._farewell is not None:
            self._link.withdraw_all()
        elif self.phase is Phase.JOINING:
            self.phase = Phase.CLOSED

    @property
    def gone(self) -> bool:
        """Whether rank 0 knows that this replica has left, or never will."""
        if self.phase is not Phase.LEAVING:
            return self.phase is Phase.CLOSED
        told = self._farewell is None and self._link.idle
        over = (self._ended or self._pending.over) and not self._pending
        return told or (over and not self._admission.connected)  # nobody needs this BYE

    @property
    def identity(self) -> Identity:
        """Who this replica is; its rank may only be known once it has joined."""
        return self._admission.identity

    @property
    def over(self) -> bool:
        """Whether the group has failed for this replica."""
        return self._failed

    @property
    def acknowledged(self) -> int:
        """The last message that rank 0 is known to have."""
        return self._link.acknowledged

    # --- the connection ---------------------------------------------------

    def connected(self, now: float) -> None:
        """A connection to rank 0 stands; one that is given up is of no use."""
        if self.phase is not Phase.CLOSED:
            self._out.append(Send(self._admission.connect(now)))

    def disconnected(self, now: float) -> None:
        """The connection is gone."""
        joined = self.phase is not Phase.JOINING
        self._admission.disconnect(now, joined=joined)
        if not joined:
            self.waiting_for = [0]

    def tick(self, now: float) -> None:
        """Time has passed."""
        if self.phase is Phase.CLOSED:
            return
        if self._admission.lost(now):
            ago = f"{now - self.heard:.1f} s"
            self._lose(f"its connection is gone; last heard of {ago} ago")
            return
        message = self._admission.due(now)
        if message is not None:
            self._tell(message)

    def _tell(self, message: Message) -> None:
        """Send a message that may get lost."""
        message.rank = max(self.identity.rank, 0)  # it may have none yet
        message.session = self._admission.session
        message.ack = self._link.received
        self._out.append(Send(message))

    # --- what arrives -----------------------------------------------------

    def receive(self, message: Message, now: float) -> None:
        """A message has come from rank 0."""
        self.heard = now
        if self.phase is Phase.CLOSED:
            return
        try:
            self._receive(message, now)
        except ProtocolError as error:
            self.misled(error)

    def misled(self, error: ProtocolError) -> None:
        """Rank 0 sent what is no message, or one that has no place here."""
        self._lose(f"it sent a message that makes no sense: {error}")

    def _receive(self, message: Message, now: float) -> None:
        if message.kind is Kind.REJECT:
            self._rejected(parse_fields(message.body), now)
        elif message.kind is Kind.WELCOME:
            self._admission.welcome(message)
        elif message.session in (0, self._admission.session) and self._link.accept(
            message
        ):
            self._handle(message)

    def _handle(self, message: Message) -> None:
        kind, seq = message.kind, message.seq
        if kind is Kind.OUTCOME:
            self._link.withdraw(message.group, seq)
            if by_code(message.operation).ends:
                self._close_after(seq)
            if not message.flags & Flag.CHUNKED:
                self._deliver(message)
        elif kind is Kind.CHUNK:
            self._deliver(message)
        elif kind is Kind.GRANT:
            self._link.grant(message.group, seq)
        elif kind is Kind.FAILURE:
            self._fail(message)
        elif kind is Kind.OVER:
            self._end(parse_fields(message.body))
        else:
            self._handle_news(message)

    def _handle_news(self, message: Message) -> None:
        """Take in what rank 0 tells of the others."""
        kind = message.kind
        if kind is Kind.READY:
            self.phase = Phase.JOINED if self.phase is Phase.JOINING else self.phase
            self.waiting_for = []
            self._table = read_table(parse_fields(message.body))
            self._out.append(Joined())
        elif kind is Kind.WAITING:
            self.waiting_for = read_ranks(parse_fields(message.body).get("missing"))
        elif kind is Kind.REPORT:
            self._out.append(read_report(message))
        elif kind is Kind.STACK:
            self._out.append(TellStack())
        elif kind not in (Kind.BEACON, Kind.ACK):
            raise ProtocolError(f"rank 0 does not send {kind.name}")

    def _deliver(self, message: Message) -> None:
        if self._pending.decide(message.seq) is not None:
            payload = message.payload
            value = payload if payload is not None and payload.parts else None
            self._out.append(Deliver(0, message.seq, value))

    def _fail(self, message: Message) -> None:
        self._link.withdraw(message.group, message.seq)
        error = from_fields(parse_fields(message.body))
        if not isinstance(error, CollectiveError):
            raise ProtocolError("a failure with an error of the group")
        call = self._pending.decide(message.seq)
        if call is not None:  # each replica names its own line
            error.op, error.seq, error.site = call[0], message.seq, call[1]
            self._out.append(Fail(0, message.seq, error))

    def _rejected(self, fields: dict[str, Any], now: float) -> None:
        reason = str(fields.get("reason"))
        refusal = self._admission.rejected(fields, now)
        if refusal is Refusal.UNKNOWN:
            self._tell(self._admission.hello(now))
        elif refusal is not None and self.phase is Phase.JOINING:
            self.phase = Phase.CLOSED
            self._out.append(Refused(RejectedError(reason)))
        elif refusal is Refusal.LOST:
            self._lose(reason, own=True)
        elif refusal is not None:
            self._lose(reason)

    # --- endings ----------------------------------------------------------

    def _end(self, fields: dict[str, Any]) -> None:
        error, after = from_fields(fields), fields.get("after")
        if type(after) is not int or not isinstance(error, GroupError):
            raise ProtocolError("an end of the group without its last call")
        self._failed = True
        self._drop_after(after, error)

    def _lose(self, why: str, *, own: bool = False) -> None:
        """Rank 0 is gone, or this replica to it: nothing more will be decided."""
        if self.phase is Phase.CLOSED:
            return
        rank = self.identity.rank if own else 0
        host, pid = self._table.get(rank, ("", 0))
        who = f"replica {rank}" + (f" ({host}, pid {pid})" if host else "")
        text = f"{who} is lost: {why}; the last call that it decided was "
        text += self._pending.last_decided
        error = ReplicaLostError(text, rank=rank, host=host, pid=pid)
        joining = self.phase is Phase.JOINING
        self.phase = Phase.CLOSED
        if joining:
            self._out.append(Refused(RejectedError(why)))
        else:
            self._out.append(Note(str(error), topic="over"))
            self._failed = True
            self._drop_after(0, error)
        self._link.close()

    def _close_after(self, seq: int) -> None:
        """Everybody has torn the group down: later calls of this replica end."""
        self._ended = True
        self._drop_after(seq, ClosedError(f"the group was torn down by call {seq}"))

    def _drop_after(self, after: int, error: GroupError) -> None:
        """Every later call ends with this error."""
        for seq in self._pending.end(after, error):
            self._pending.drop(seq)
            self._link.withdraw(0, seq)
            self._out.append(Fail(0, seq, error))

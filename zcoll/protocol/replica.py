"""A replica's machine: calls, messages and times in, instructions out.

Every replica has one, rank 0 too; rank 0's is joined to the coordinator by a
:class:`~zcoll.protocol.link.LocalLink`. It numbers the calls, gets the replica
into the group and back into it after a reconnect, and says how each call ended.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from zcoll.errors import ProtocolError, RejectedError, ReplicaLostError
from zcoll.protocol.admission import Admission
from zcoll.protocol.calling import OF_CALLS, Calling
from zcoll.protocol.events import (
    WORLD,
    Joined,
    Note,
    Refused,
    ReplicaInstruction,
    Send,
    TellStack,
)
from zcoll.protocol.failures import shorten
from zcoll.protocol.identities import read_table
from zcoll.protocol.membership import Refusal
from zcoll.protocol.reports import read_ranks, read_report
from zcoll.wire import Kind, Message, pack_fields, parse_fields

if TYPE_CHECKING:
    from zcoll.payload import Buffer, Payload
    from zcoll.protocol.events import Contribution, Identity, Timing
    from zcoll.protocol.link import Link


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

    Attributes:
        calling: Its calls, in all its groups.
        phase: How far it is.
        waiting_for: Who is missing, as far as it is known, while joining.
        heard: When something last came from rank 0.
    """

    def __init__(
        self, identity: Identity, job: str, timing: Timing, link: Link
    ) -> None:
        self.phase = Phase.JOINING
        self.waiting_for = [0]
        self.heard = 0.0
        self._link = link
        self._admission = Admission(identity, job, timing, link)
        self._table: dict[int, tuple[str, int]] = {}  # rank -> host, pid
        self._out: list[ReplicaInstruction] = []
        self.calling = Calling(identity.num_replicas, link, self._out)
        self._failed = False  # by an error of the group
        self._farewell: Message | None = None  # goes when every payload has gone

    def take(self) -> list[ReplicaInstruction]:
        """Take the instructions that have come up, in order."""
        if not self._link.silent:
            self._transmit()
        if self._farewell is not None and not (
            self._link.owes_payloads or self.calling.owes_functions
        ):
            self._link.send(self._farewell)
            self._farewell = None
            self._transmit()
        out = self._out.copy()
        if out:
            self._out.clear()
        return out

    def _transmit(self) -> None:
        rank, session = self.identity.rank, self._admission.session
        for message in self._link.transmit():
            message.rank, message.session = rank, session
            self._out.append(Send(message))

    # --- what the program asks for ----------------------------------------

    def is_quiet(self, group: int) -> bool:
        """Whether nothing goes on, and the group's next call may be made."""
        joined = self.phase is Phase.JOINED
        silent = self._link.silent and not self._out
        return joined and silent and self.calling.quiet(group)

    def call_at_once(self, made: Contribution) -> tuple[int, bytes] | None:
        """Make a call the short way, if it can go that way.

        Returns:
            Its number, and the frame to put on the wire; None if ``calling.call`` has
            to make it.
        """
        if self.phase is not Phase.JOINED or self._out:
            return None
        admission = self._admission
        return self.calling.call_at_once(
            made, admission.identity.rank, admission.session
        )

    def end_at_once(
        self, group: int, frames: list[Buffer], now: float
    ) -> Payload | None:
        """Take in a message, if it is the small outcome of that call.

        Returns:
            The outcome; None if it is anything else, and nothing has been changed.
        """
        outcome = self.calling.end_at_once(group, frames)
        if outcome is not None:
            self.heard = now
        return outcome

    def ask(self, group: int, seq: int) -> None:
        """Ask rank 0 who is missing in a call."""
        self._tell(Message(Kind.QUERY, group=group, seq=seq))

    def tell(self, where: str, stack: str, seconds: float) -> None:
        """Tell rank 0 where this replica's program is.

        Args:
            where: Its line of user code.
            stack: The whole stack of its main thread.
            seconds: Since when it has made or got no call.
        """
        fields = {
            "waiting": str(self.calling),
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

        Rank 0 hears of it after the last payload that it has granted, and the last
        function that it has asked for; or at once, if this is said a second time, and
        then calls for which some of that has not gone do not count.
        """
        if self.phase is Phase.JOINED:
            self._farewell = Message(
                Kind.BYE, body=pack_fields({"reason": shorten(reason)})
            )
            self.phase = Phase.LEAVING
        elif self._farewell is not None:
            self._link.withdraw_all()
            self.calling.withdraw_functions()
        elif self.phase is Phase.JOINING:
            self.phase = Phase.CLOSED

    @property
    def busy(self) -> bool:
        """Whether chunks go on being sent as grants and acknowledgements arrive."""
        return self._link.owes_payloads

    @property
    def gone(self) -> bool:
        """Whether rank 0 knows that this replica has left, or never will."""
        if self.phase is not Phase.LEAVING:
            return self.phase is Phase.CLOSED
        told = self._farewell is None and self._link.idle
        ended = self.calling.torn_down or self.calling.over(WORLD)
        over = ended and not len(self.calling)
        return told or (over and not self._admission.connected)  # nobody needs this BYE

    @property
    def identity(self) -> Identity:
        """Who this replica is; its rank may only be known once it has joined."""
        return self._admission.identity

    @property
    def over(self) -> bool:
        """Whether the world has failed for this replica."""
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
        kind, session = message.kind, message.session
        if kind is Kind.REJECT:
            self._rejected(parse_fields(message.body), now)
        elif kind is Kind.WELCOME:
            self._admission.welcome(message)
        elif session == self._admission.session or not session:
            if not self._link.accept(message):
                return
            if kind in OF_CALLS:
                self.calling.receive(message)
                self._failed |= kind is Kind.OVER and message.group == WORLD
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

    def _lose(self, why: str, *, own: bool = False) -> None:
        """Rank 0 is gone, or this replica to it: nothing more will be decided."""
        if self.phase is Phase.CLOSED:
            return
        rank = self.identity.rank if own else 0
        host, pid = self._table.get(rank, ("", 0))
        who = f"replica {rank}" + (f" ({host}, pid {pid})" if host else "")
        text = f"{who} is lost: {why}; the last call that it decided was "
        text += self.calling.last_decided
        error = ReplicaLostError(text, rank=rank, host=host, pid=pid)
        joining = self.phase is Phase.JOINING
        self.phase = Phase.CLOSED
        if joining:
            self._out.append(Refused(RejectedError(why)))
        else:
            self._out.append(Note(str(error), topic="over"))
            self._failed = True
            self.calling.end_all(error)
        self._link.close()

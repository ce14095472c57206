"""A replica's way into its group, and back into it after a reconnect.

HELLO says who it is, and what it has received; WELCOME admits it, and says what
rank 0 has received. REJECT says why not: that may be final, may pass, or mean no
more than that HELLO has to be said again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zcoll.errors import ProtocolError
from zcoll.protocol.identities import write_identity
from zcoll.protocol.membership import Refusal
from zcoll.wire import AUTO_RANK, Kind, Message, pack_fields

if TYPE_CHECKING:
    from zcoll.protocol.events import Identity, Timing
    from zcoll.protocol.link import Link

RETRY = 0.25  # seconds before a HELLO that may succeed later is sent again
ABSENCE = 1.0  # seconds between two ticks after which this process was held up


class Admission:
    """Whether this replica is in touch with rank 0.

    Args:
        identity: Who it is.
        job: The job's name.
        timing: The times.
        link: This end of the connection.

    Attributes:
        identity: Who it is; with a rank once rank 0 has given it one.
        session: The group's number; 0 before it is known.
        connected: Whether a connection stands.
    """

    def __init__(
        self, identity: Identity, job: str, timing: Timing, link: Link
    ) -> None:
        self.session = 0
        self.connected = False
        self.identity = self._told = identity
        self._job = job
        self._timing = timing
        self._link = link
        self._admitted = False
        self._cut: float | None = None
        self._hello_at: float | None = None
        self._beacon_at = 0.0
        self._taken_since: float | None = None
        self._ticked: float | None = None

    def connect(self, now: float) -> Message:
        """A connection stands: say who this is."""
        self.connected, self._admitted = True, False
        return self.hello(now)

    def disconnect(self, now: float, *, joined: bool) -> None:
        """The connection is gone."""
        self.connected = self._admitted = False
        # Word of an old connection's end may come after that of a new one's
        # beginning: so HELLO is said again, and is lost if there is none.
        self._hello_at = now + RETRY
        self._link.suspend()
        if not joined:
            # Rank 0 may come back as another one.
            self.session, self.identity = 0, self._told
        elif self._cut is None:
            self._cut = now

    def hello(self, now: float) -> Message:
        """Say who this is, and what it has received."""
        fields = {
            **write_identity(self.identity),
            "job": self._job,
            "session": self.session,
        }
        self._hello_at = now + self._timing.hello_interval
        return Message(Kind.HELLO, body=pack_fields(fields), ack=self._link.received)

    def welcome(self, message: Message) -> None:
        """Rank 0 lets this replica in, or in again.

        Raises:
            ProtocolError: It is another group's.
        """
        if self.session not in (0, message.session):
            raise ProtocolError("welcomed to another group")
        if self.identity.rank == AUTO_RANK:
            self.identity = self.identity._replace(rank=message.rank)
        self.session, self.connected = message.session, True
        self._admitted, self._cut, self._hello_at = True, None, None
        self._taken_since = None
        self._link.resume(message.ack)

    def rejected(self, fields: dict[str, Any], now: float) -> Refusal | None:
        """Rank 0 does not let this replica in.

        Returns:
            What it can do about it; None if it will ask again.

        Raises:
            ProtocolError: The refusal is none.
        """
        try:
            refusal = Refusal(fields.get("refusal"))
        except ValueError:
            raise ProtocolError("a refusal of no known kind") from None
        if refusal is Refusal.TAKEN and self._taken_since is None:
            self._taken_since = now
        if refusal is Refusal.CLOSING or (
            refusal is Refusal.TAKEN
            and now - (self._taken_since or now) < self._timing.taken_limit
        ):
            self._hello_at = now + RETRY
            return None
        return refusal

    def lost(self, now: float) -> bool:
        """Whether the connection has been down for too long.

        Time in which this process itself was held up does not count.
        """
        held_up = 0.0 if self._ticked is None else now - self._ticked
        self._ticked = now
        if self._cut is None:
            return False
        if held_up > ABSENCE:
            self._cut = min(self._cut + held_up, now)
        return now - self._cut >= self._timing.reconnect_window

    def due(self, now: float) -> Message | None:
        """What has to be sent now: HELLO once more, or a sign of life."""
        if self._hello_at is not None and now >= self._hello_at:
            return self.hello(now)
        if self._admitted and now >= self._beacon_at:
            self._beacon_at = now + self._timing.beacon_interval
            return Message(Kind.BEACON, ack=self._link.received)
        return None

"""A look at a group from outside: is rank 0 there, and how is the group?

A probe needs the group's secret but no rank, and does not join. Where no answer
comes it finds out why: that differs for a name that does not resolve, a port at
which nobody listens, another secret, and something that is not zcoll.
"""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zcoll.errors import ProtocolError, SecurityError
from zcoll.transport.address import NameNotResolved, Place, connect_place, is_local
from zcoll.transport.greeting import Finding, look
from zcoll.transport.sockets import Dealer, Event, Heartbeat
from zcoll.wire import Kind, Message, OtherVersionError, pack, parse, parse_fields

if TYPE_CHECKING:
    from zcoll.launchers.settings import Target

_LOOK = 1.0  # seconds to read another program's greeting


class Reason(enum.Enum):
    """Why rank 0 was not reached. The values are for programs, as in JSON."""

    UNRESOLVED = "unresolved"
    REFUSED = "refused"
    NO_ANSWER = "no-answer"
    WRONG_SECRET = "wrong-secret"  # noqa: S105 - a reason
    ONE_SIDED_SECRET = "one-sided-secret"  # noqa: S105 - a reason
    NOT_ZCOLL = "not-zcoll"
    OTHER_VERSION = "other-version"
    UNTRUSTED = "untrusted"


class Unreachable(Exception):  # noqa: N818 - a finding, caught by whoever asks
    """Rank 0 was not reached.

    Attributes:
        reason: Why, for programs.
        text: Why, for people.
    """

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


@dataclass(frozen=True, slots=True)
class Answer:
    """Rank 0's answer to a probe.

    Attributes:
        elapsed: Seconds from the question to the answer.
        status: What rank 0 says of the group: ``package``, ``num_replicas``,
            ``replicas``, ``complete``, ``closing``, ``decided`` and ``call``.
    """

    elapsed: float
    status: dict[str, Any]


def locate(target: Target) -> Place:
    """Say where a group is to be found.

    Raises:
        ConfigurationError: The address is none.
        Unreachable: Its name does not resolve, or it is behind a secret.
    """
    try:
        if target.secret is not None or is_local(target.master_addr):
            return connect_place(
                target.master_addr,
                target.master_port,
                secret=target.secret is not None,
            )
        # Nothing is said to another host without a secret; but who listens there?
        there = connect_place(target.master_addr, target.master_port, secret=True)
    except NameNotResolved as error:
        raise Unreachable(Reason.UNRESOLVED, str(error.strerror)) from error
    raise _unreachable(there, look(there, _LOOK), secret=False)


class Prober:
    """Asks rank 0 at one place, again and again. Use it as a context manager.

    Args:
        target: The group.
        place: Where it is, as :func:`locate` says.
    """

    def __init__(self, target: Target, place: Place) -> None:
        self._place = place
        self._secret = target.secret
        keys = None if target.secret is None else target.secret.keys()
        self._dealer = Dealer(place, keys, Heartbeat())
        self._connected = False
        self._refused = False
        self._seq = 0

    def __enter__(self) -> Prober:
        return self

    def __exit__(self, *_: object) -> None:
        self._dealer.close()

    def ask(self, timeout: float, size: int = 0) -> Answer:
        """Ask once.

        Args:
            timeout: The limit in seconds, the connection included.
            size: Bytes that the question carries, and the answer at least.

        Raises:
            Unreachable: No answer came in time, or one that says why not.
        """
        deadline = time.monotonic() + timeout
        self._seq += 1
        ping = Message(Kind.PING, seq=self._seq, body=b" " * size)
        asked: float | None = None
        while (left := deadline - time.monotonic()) > 0:
            if asked is None and self._connected:
                asked = time.monotonic()
                self._dealer.send(pack(ping))
            status = self._receive()
            if status is not None and asked is not None:
                return Answer(time.monotonic() - asked, status)
            self._dealer.wait(left)
            asked = self._note_events(asked)
        raise self._diagnose()

    def _note_events(self, asked: float | None) -> float | None:
        """A new connection needs the question again."""
        for event in self._dealer.events():
            self._connected = event is Event.CONNECTED
            self._refused = self._refused or event is Event.REFUSED
            asked = None
        return asked

    def _receive(self) -> dict[str, Any] | None:
        while (frames := self._dealer.receive()) is not None:
            try:
                message = parse(frames)
                if message.kind is Kind.PONG and message.seq == self._seq:
                    return parse_fields(message.body)
            except OtherVersionError as error:
                text = f"rank 0 at {self._place} speaks another protocol: {error}"
                raise Unreachable(Reason.OTHER_VERSION, text) from error
            except ProtocolError as error:
                text = f"what answers at {self._place} is not zcoll: {error}"
                raise Unreachable(Reason.NOT_ZCOLL, text) from error
        return None

    def _diagnose(self) -> Unreachable:
        if self._connected:
            text = f"rank 0 at {self._place} accepts, but does not answer: it is busy"
            return Unreachable(Reason.NO_ANSWER, f"{text}, stopped or overloaded")
        finding = look(self._place, _LOOK)
        return _unreachable(self._place, finding, secret=self._secret is not None)


def _unreachable(place: Place, finding: Finding, *, secret: bool) -> Unreachable:
    """Explain what was found where rank 0 should have answered."""
    if finding is Finding.CURVE and secret:
        text = f"rank 0 at {place} refuses this secret: it has another one"
        return Unreachable(Reason.WRONG_SECRET, text)
    if finding is Finding.CURVE:
        text = f"the group at {place} has a secret, and none is set here: set "
        return Unreachable(Reason.ONE_SIDED_SECRET, f"{text}ZCOLL_SECRET")
    if finding is Finding.NOT_ZEROMQ or (finding is Finding.NULL and secret):
        text = f"what listens at {place} is not zcoll"
        return Unreachable(Reason.NOT_ZCOLL, text)
    if finding in (Finding.REFUSED, Finding.ABSENT):
        return _look_the_other_way(place) or Unreachable(
            Reason.REFUSED, f"nobody listens at {place}: rank 0 is not up yet, or gone"
        )
    return Unreachable(Reason.NO_ANSWER, f"no answer from {place}")


def _look_the_other_way(place: Place) -> Unreachable | None:
    """With a secret a group is at TCP, without one at a socket file."""
    if place.kind == "ipc":
        other = Place("tcp", "127.0.0.1", place.port)
        text = (
            f"the group at {other} has a secret, and none is set here: set ZCOLL_SECRET"
        )
        wanted = Finding.CURVE
    elif place.loopback:
        other = Place("ipc", "", place.port)
        text = f"a secret is set here, and the group at {other} has none: unset it"
        wanted = Finding.NULL
    else:
        return None
    try:
        found = look(other, _LOOK)
    except SecurityError as error:
        return Unreachable(Reason.UNTRUSTED, str(error))
    return Unreachable(Reason.ONE_SIDED_SECRET, text) if found is wanted else None

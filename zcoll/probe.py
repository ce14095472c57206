"""A look at a group from outside: is rank 0 there, and how is the group?

A probe needs the group's secret but no rank, and does not join. Where no answer
comes it finds out why: that differs for a name that does not resolve, a port at
which nobody listens, another secret, and something that is not zcoll.
"""

from __future__ import annotations

import concurrent.futures
import enum
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zcoll.errors import ProtocolError, SecurityError
from zcoll.protocol.status import Status, read_status
from zcoll.transport import ipc
from zcoll.transport.address import NameNotResolved, Place, connect_place, is_local
from zcoll.transport.greeting import Finding, look
from zcoll.transport.lookup import look_up
from zcoll.transport.monitor import Event
from zcoll.transport.sockets import Dealer, Heartbeat
from zcoll.wire import Kind, Message, OtherVersionError, pack, parse, parse_fields

if TYPE_CHECKING:
    from zcoll.launchers.settings import Target

_LOOK = 1.0  # seconds to read another program's greeting
_PATIENCE = 0.3  # seconds without a connection after which such a look is due


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
        status: How the group is.
    """

    elapsed: float
    status: Status


def locate(target: Target, timeout: float) -> Place:
    """Say where a group is to be found.

    Args:
        target: The group.
        timeout: The limit in seconds for looking its name up.

    Raises:
        ConfigurationError: The address is none.
        Unreachable: Its name does not resolve, it is behind a secret, or the
            directory of private sockets cannot be trusted.
    """
    try:
        if target.secret is None and is_local(target.master_addr):
            place = connect_place(target.master_addr, target.master_port, secret=False)
            ipc.socket_path(place.port, create=False)
            return place
        place = _resolve(target, timeout)
    except NameNotResolved as error:
        raise Unreachable(Reason.UNRESOLVED, str(error.strerror)) from error
    except SecurityError as error:
        raise Unreachable(Reason.UNTRUSTED, str(error)) from error
    if target.secret is None:
        # Nothing is said to another host without a secret; but who listens there?
        finding = look(place, _LOOK)
        raise _explain(target, place, finding) or _unanswered(place, finding)
    return place


def _resolve(target: Target, timeout: float) -> Place:
    """Look the address up, within a limit in seconds."""
    found = look_up(target.master_addr, target.master_port, secret=True)
    try:
        return found.result(timeout)
    except concurrent.futures.TimeoutError:
        text = f"{target.master_addr!r} did not resolve within {timeout:g} s"
        raise Unreachable(Reason.UNRESOLVED, text) from None


class Prober:
    """Asks rank 0 at one place, again and again. Use it as a context manager.

    Args:
        target: The group.
        place: Where it is, as :func:`locate` says.
    """

    def __init__(self, target: Target, place: Place) -> None:
        self._target = target
        self._place = place
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
            timeout: The limit in seconds, the connection included. What the probe
                finds out where there is no connection may take a second more.
            size: Bytes that the question carries, and the answer at least.

        Raises:
            Unreachable: No answer came in time, or one that says why not.
        """
        now = time.monotonic()
        deadline, look_at = now + timeout, now + min(_PATIENCE, timeout)
        self._seq += 1
        frames = pack(Message(Kind.PING, seq=self._seq, body=b" " * size))
        asked: float | None = None
        finding: Finding | None = None
        while True:
            if self._note_events():
                asked = None  # a new connection needs the question again
            if self._connected and asked is None:
                asked = time.monotonic()
                self._dealer.send(frames)
            status = self._receive()
            if status is not None and asked is not None:
                return Answer(time.monotonic() - asked, status)
            if not self._connected:
                if finding is None and (self._refused or now >= look_at):
                    finding = look(self._place, _LOOK)
                self._give_up_if_hopeless(finding)
            if now >= deadline:
                raise _unanswered(self._place, finding)
            look_is_next = finding is None and not self._connected
            self._dealer.wait((look_at if look_is_next else deadline) - now)
            now = time.monotonic()

    def _note_events(self) -> bool:
        events = self._dealer.events()
        for event in events:
            self._connected = event is Event.CONNECTED
            self._refused = self._refused or event is Event.REFUSED
        return bool(events)

    def _give_up_if_hopeless(self, finding: Finding | None) -> None:
        """End what waiting longer would not mend."""
        if finding is Finding.CURVE and self._refused and self._target.secret:
            raise Unreachable(
                Reason.WRONG_SECRET,
                f"the handshake with {self._place} was refused: rank 0 there has "
                "another secret. Give every replica, and this command, the same "
                "ZCOLL_SECRET or ZCOLL_SECRET_FILE",
            )
        hopeless = finding and _explain(self._target, self._place, finding)
        if hopeless:
            raise hopeless

    def _receive(self) -> Status | None:
        while (frames := self._dealer.receive()) is not None:
            try:
                message = parse(frames)
                if message.kind is Kind.PONG and message.seq == self._seq:
                    return read_status(parse_fields(message.body))
            except OtherVersionError as error:
                text = f"rank 0 at {self._place} has another zcoll: {error}"
                raise Unreachable(Reason.OTHER_VERSION, text) from error
            except ProtocolError as error:
                text = f"what answers at {self._place} is not zcoll: {error}"
                raise Unreachable(Reason.NOT_ZCOLL, text) from error
        return None


def _explain(target: Target, place: Place, finding: Finding) -> Unreachable | None:
    """Explain what was found where rank 0 should be; None if it may be rank 0."""
    if finding in (Finding.REFUSED, Finding.ABSENT):
        return _look_the_other_way(target, place) or _nobody(target, place)
    if finding is Finding.CURVE and target.secret is None:
        return Unreachable(
            Reason.ONE_SIDED_SECRET,
            f"the group at {place} has a secret, and none is set here: set "
            "ZCOLL_SECRET or ZCOLL_SECRET_FILE",
        )
    if finding is Finding.NOT_ZEROMQ:
        return Unreachable(Reason.NOT_ZCOLL, f"what listens at {place} is not zcoll")
    if finding is Finding.NULL and place.kind == "tcp":
        text = f"what listens at {place} is not zcoll: a ZeroMQ socket without a secret"
        return Unreachable(Reason.NOT_ZCOLL, text)
    return None


def _nobody(target: Target, place: Place) -> Unreachable:
    text = f"nobody listens at {place}: rank 0 is not up yet, or gone"
    if target.secret is None and place.kind == "tcp":
        text += (
            "; a group without a secret is reached on its own host only, as "
            f"127.0.0.1:{place.port}, and one with a secret needs ZCOLL_SECRET here"
        )
    return Unreachable(Reason.REFUSED, text)


def _unanswered(place: Place, finding: Finding | None) -> Unreachable:
    if place.kind == "ipc" or place.loopback or finding is not Finding.NO_ANSWER:
        text = f"what listens at {place} does not answer: it is stopped or busy"
        text += ", or not zcoll" if finding is Finding.NO_ANSWER else ""
    else:
        text = (
            f"no answer from {place}: the host is down or not reachable, or what "
            "listens there is stopped, busy, or not zcoll"
        )
    return Unreachable(Reason.NO_ANSWER, text)


def _look_the_other_way(target: Target, place: Place) -> Unreachable | None:
    """Nobody listens. With a secret a group is at TCP, without one at a socket file."""
    if place.kind == "ipc":
        try:
            other = _resolve(target, _LOOK)  # numbers and "localhost" only
        except (NameNotResolved, Unreachable):
            return None
        finding = look(other, _LOOK)
        if finding is Finding.REFUSED:
            return None
        return _explain(target, other, finding) or _unanswered(other, finding)
    if target.secret is not None and place.loopback:
        other = Place("ipc", "", place.port)
        if look(other, _LOOK) is Finding.NULL:
            text = f"a secret is set here, and the group at {other} has none: unset it"
            return Unreachable(Reason.ONE_SIDED_SECRET, text)
    return None

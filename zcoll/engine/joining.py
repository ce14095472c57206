"""From settings to an engine whose group is complete."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import secrets
import socket
import time
from typing import TYPE_CHECKING, TypeVar

from zcoll.engine.alone import Alone
from zcoll.engine.hub import Hub
from zcoll.engine.spoke import Spoke
from zcoll.errors import AuthenticationError, RendezvousTimeoutError, name_ranks
from zcoll.protocol.coordinator import Coordinator
from zcoll.protocol.events import Identity, Timing
from zcoll.protocol.link import Link, LocalLink
from zcoll.protocol.replica import Replica
from zcoll.transport.address import NameNotResolved, Place, bind_place, connect_place
from zcoll.transport.greeting import Finding, look
from zcoll.transport.ipc import InUseError
from zcoll.transport.sockets import Dealer, Router
from zcoll.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    from zcoll.launchers.environment import Settings

T = TypeVar("T")
_log = logging.getLogger("zcoll.joining")

FIRST_NEWS = 10.0  # seconds after which a wait is logged first, then at twice that
CLOSING_LIMIT = 3.0  # seconds that an earlier group of this port may take to close
REFUSED_LIMIT = 3.0  # seconds of refused handshakes that are not a slow start
LOOK_TIMEOUT = 1.0  # seconds to read another program's greeting
RECONNECT_WINDOW = 2.0  # seconds; for TCP only: on one host nothing cuts a connection


def join(settings: Settings) -> Hub | Spoke | Alone:
    """Bring this replica into its group, and wait until the group is complete.

    Raises:
        ConfigurationError: The address cannot be used, or the port is taken.
        SecurityError: The directory of private sockets cannot be trusted.
        RendezvousError: The group did not come together.
    """
    identity = Identity(
        rank=settings.rank,
        num_replicas=settings.num_replicas,
        host=socket.gethostname(),
        pid=os.getpid(),
        incarnation=secrets.randbits(63),
        package=__version__,
        python=platform.python_version(),
    )
    if settings.num_replicas == 1:
        return Alone(identity)
    deadline = time.monotonic() + settings.timeout
    attempt = _open_hub if settings.rank == 0 else _open_spoke
    engine, place = attempt(settings, identity, deadline)
    try:
        engine.start()
        _wait(engine, place, settings, deadline)
    except BaseException:
        engine.leave()
        raise
    return engine


def _timing(place: Place) -> Timing:
    return Timing(reconnect_window=RECONNECT_WINDOW if place.kind == "tcp" else 0.3)


def _open_hub(
    settings: Settings, identity: Identity, deadline: float
) -> tuple[Hub, Place]:
    def place_it() -> Place:
        return bind_place(
            settings.master_addr,
            settings.master_port,
            secret=settings.secret is not None,
            bind_addr=settings.bind_addr,
        )

    place = _retry(place_it, NameNotResolved, deadline, settings, missing=[0])
    keys = None if settings.secret is None else settings.secret.keys()
    with contextlib.ExitStack() as stack:
        listener = _inherited(settings, place)
        if listener is not None:
            stack.enter_context(listener)
        limit = min(deadline, time.monotonic() + CLOSING_LIMIT)
        router = _retry(
            lambda: Router(place, keys, listener), InUseError, limit, settings
        )
    timing = _timing(place)
    replica = Replica(identity, settings.job, timing, LocalLink())
    session = secrets.randbits(63) | 1
    coordinator = Coordinator(identity, session, settings.job, timing)
    return Hub(identity, replica, coordinator, router), place


def _open_spoke(
    settings: Settings, identity: Identity, deadline: float
) -> tuple[Spoke, Place]:
    def place_it() -> Place:
        return connect_place(
            settings.master_addr,
            settings.master_port,
            secret=settings.secret is not None,
        )

    place = _retry(place_it, NameNotResolved, deadline, settings, missing=[0])
    keys = None if settings.secret is None else settings.secret.keys()
    replica = Replica(identity, settings.job, _timing(place), Link(grants=True))
    return Spoke(identity, replica, Dealer(place, keys)), place


def _inherited(settings: Settings, place: Place) -> socket.socket | None:
    """The listening socket that ``zcoll run`` has made for rank 0, if it is there."""
    if settings.listen_fd is None:
        return None
    try:
        listener = socket.socket(fileno=os.dup(settings.listen_fd))
    except OSError:
        return None  # a program between closed it, or this is not rank 0's process
    name = listener.getsockname()
    here = name[1] if isinstance(name, tuple) else os.path.basename(name)
    if str(here) == str(place.port):
        os.set_inheritable(settings.listen_fd, False)
        return listener
    listener.close()
    return None


def _retry(
    attempt: Callable[[], T],
    passing: type[Exception],
    deadline: float,
    settings: Settings,
    missing: list[int] | None = None,
) -> T:
    """Try until it works or the deadline is over, while an error may still pass."""
    while True:
        try:
            return attempt()
        except passing as error:
            if time.monotonic() >= deadline:
                if missing is None:
                    raise
                detail = error.args[-1]
                raise RendezvousTimeoutError(
                    missing, settings.timeout, detail
                ) from error
            time.sleep(max(0.0, min(0.25, deadline - time.monotonic())))


def _wait(
    engine: Hub | Spoke, place: Place, settings: Settings, deadline: float
) -> None:
    """Wait for the group to be complete; say now and then whom for."""
    started = time.monotonic()
    news, checked = started + FIRST_NEWS, started
    while True:
        now = time.monotonic()
        pause = min(0.5, deadline - now)
        if engine.joined.wait(max(0.0, pause)):
            if engine.refusal is not None:
                raise engine.refusal
            return
        if isinstance(engine, Spoke) and now - checked >= 1.0:
            checked = now
            _check_secret(engine, place, settings, now - started)
        if now >= deadline:
            raise RendezvousTimeoutError(
                engine.waiting_for, settings.timeout, _detail(engine, place)
            )
        if now >= news:
            news = now + 2 * (now - started)
            _log.warning(
                "replica %d waits for %s since %.0f s; %s",
                settings.rank,
                name_ranks(engine.waiting_for),
                now - started,
                _detail(engine, place),
            )


def _detail(engine: Hub | Spoke, place: Place) -> str:
    if isinstance(engine, Hub):
        return f"rank 0 listens at {place}"
    if engine.waiting_for != [0]:
        return f"rank 0 at {place} is there"
    finding = look(place, LOOK_TIMEOUT)
    return f"rank 0 is expected at {place}: {finding.value}"


def _check_secret(
    engine: Spoke, place: Place, settings: Settings, waited: float
) -> None:
    """Tell a replica with another secret than rank 0's from one that is early.

    Raises:
        AuthenticationError: The secrets differ, or only one side has one.
    """
    if engine.connected or waited < REFUSED_LIMIT:
        return
    refusals = engine.refusals
    if refusals is not None and refusals[1] - refusals[0] >= REFUSED_LIMIT:
        if look(place, LOOK_TIMEOUT) is Finding.CURVE:
            raise AuthenticationError(
                f"rank 0 at {place} refuses this replica's secret: give every replica "
                "the same ZCOLL_SECRET (or secret=, ZCOLL_SECRET_FILE)"
            )
        if look(place, LOOK_TIMEOUT) is Finding.NULL:
            raise AuthenticationError(
                f"what listens at {place} is a ZeroMQ socket without a secret, and so "
                "not rank 0 of this group: check the master address and port"
            )
    if place.kind == "ipc":
        other = Place("tcp", "127.0.0.1", place.port)
        if look(other, LOOK_TIMEOUT) is Finding.CURVE:
            raise AuthenticationError(
                f"rank 0 has a secret (it listens at {other}), this replica has none: "
                "set ZCOLL_SECRET or ZCOLL_SECRET_FILE to the same value here"
            )
    elif place.loopback:
        other = Place("ipc", "", place.port)
        if look(other, LOOK_TIMEOUT) is Finding.NULL:
            raise AuthenticationError(
                f"this replica has a secret, rank 0 has none (it listens at {other}): "
                "give rank 0 the same ZCOLL_SECRET, or unset it here"
            )

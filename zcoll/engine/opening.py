"""From settings to an engine with its socket."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import time
from typing import TYPE_CHECKING, TypeVar

from zcoll.engine.hub import Hub
from zcoll.engine.spoke import Spoke
from zcoll.errors import RendezvousTimeoutError
from zcoll.protocol.events import Timing
from zcoll.protocol.link import Link, LocalLink
from zcoll.protocol.replica import Replica
from zcoll.transport.address import NameNotResolved, Place, bind_place, connect_place
from zcoll.transport.ipc import InUseError
from zcoll.transport.sockets import Dealer, Heartbeat, Router

if TYPE_CHECKING:
    from collections.abc import Callable

    from zcoll.launchers.settings import Settings
    from zcoll.protocol.events import Identity

T = TypeVar("T")

CLOSING_LIMIT = 3.0  # seconds that an earlier group of this port may take to close
IPC_WINDOW = 0.3  # seconds; instead of the reconnect window: only death cuts ipc


def open_engine(
    settings: Settings, identity: Identity, deadline: float
) -> tuple[Hub | Spoke, Place]:
    """Make the engine of one of several replicas, with its socket.

    Args:
        settings: The group.
        identity: Who this replica is.
        deadline: When to give up, by the monotonic clock.

    Returns:
        The engine, which is yet to be started, and where rank 0 listens.

    Raises:
        ConfigurationError: The address cannot be used, or the port is taken.
        SecurityError: The directory of private sockets cannot be trusted.
        RendezvousTimeoutError: Rank 0's name did not resolve in time.
    """
    open_it = _open_hub if settings.rank == 0 else _open_spoke
    return open_it(settings, identity, deadline)


def _timing(settings: Settings, place: Place) -> Timing:
    liveness = settings.liveness
    return Timing(
        reconnect_window=(
            liveness.reconnect_window if place.kind == "tcp" else IPC_WINDOW
        ),
        silence=liveness.heartbeat_interval + liveness.heartbeat_timeout,
    )


def _heartbeat(settings: Settings) -> Heartbeat:
    liveness = settings.liveness
    return Heartbeat(liveness.heartbeat_interval, liveness.heartbeat_timeout)


def _open_hub(
    settings: Settings, identity: Identity, deadline: float
) -> tuple[Hub, Place]:
    from zcoll.protocol.coordinator import Coordinator  # noqa: PLC0415 - rank 0's

    def place_it() -> Place:
        return bind_place(
            settings.master_addr,
            settings.master_port,
            secret=settings.secret is not None,
            bind_addr=settings.bind_addr,
        )

    place = _retry(place_it, NameNotResolved, deadline, settings, missing=[0])
    keys = None if settings.secret is None else settings.secret.keys()
    heartbeat = _heartbeat(settings)
    with contextlib.ExitStack() as stack:
        listener = _inherited(settings, place)
        if listener is not None:
            stack.enter_context(listener)
        limit = min(deadline, time.monotonic() + CLOSING_LIMIT)
        router = _retry(
            lambda: Router(place, keys, heartbeat, listener),
            InUseError,
            limit,
            settings,
        )
    timing = _timing(settings, place)
    replica = Replica(identity, settings.job, timing, LocalLink())
    session = random.SystemRandom().getrandbits(63) | 1
    coordinator = Coordinator(identity, session, settings.job, timing)
    hub = Hub(
        identity,
        replica,
        place,
        settings.liveness,
        settings.loads,
        coordinator,
        router,
        shares_memory=settings.shares_memory,
    )
    return hub, place


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
    timing, heartbeat = _timing(settings, place), _heartbeat(settings)
    replica = Replica(identity, settings.job, timing, Link(grants=True))
    dealer = Dealer(place, keys, heartbeat)
    spoke = Spoke(
        identity,
        replica,
        place,
        settings.liveness,
        settings.loads,
        dealer,
        shares_memory=settings.shares_memory,
    )
    return spoke, place


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

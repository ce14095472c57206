"""The wait for a group to be complete, and what goes wrong meanwhile."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from zcoll.engine.hub import Hub
from zcoll.engine.spoke import Spoke
from zcoll.errors import AuthenticationError, RendezvousTimeoutError, name_ranks
from zcoll.transport.address import Place
from zcoll.transport.greeting import Finding, look
from zcoll.transport.lookup import look_up

if TYPE_CHECKING:
    from concurrent.futures import Future

    from zcoll.launchers.settings import Settings

_log = logging.getLogger("zcoll.joining")

FIRST_NEWS = 10.0  # seconds after which a wait is logged first, then at twice that
REFUSED_LIMIT = 3.0  # seconds of refused handshakes that are not a slow start
LOOK_TIMEOUT = 1.0  # seconds to read another program's greeting


def wait_until_complete(
    engine: Hub | Spoke, place: Place, settings: Settings, deadline: float
) -> None:
    """Wait for the group to be complete; say now and then whom for.

    Args:
        engine: The engine, started.
        place: Where rank 0 listens.
        settings: The group.
        deadline: When to give up, by the monotonic clock.

    Raises:
        RendezvousTimeoutError: Somebody is missing at the deadline.
        RejectedError: Rank 0 refused this replica.
        AuthenticationError: The secrets differ, or only one side has one.
    """
    whereabouts = _Whereabouts(settings)
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
            place = whereabouts.follow(engine, place)
            _check_secret(engine, place, settings, now - started)
        if now >= deadline:
            raise RendezvousTimeoutError(
                engine.waiting_for, settings.timeout, _detail(engine, place)
            )
        if now >= news:
            news = now + 2 * (now - started)
            _log.warning(
                "%s waits for %s since %.0f s; %s",
                engine.identity.name,
                name_ranks(engine.waiting_for),
                now - started,
                _detail(engine, place),
            )


class _Whereabouts:
    """Looks rank 0's name up again while there is no connection to it.

    Rank 0 may be started again with another address, as containers are.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lookup: Future[Place] | None = None

    def follow(self, engine: Spoke, place: Place) -> Place:
        """Lead the engine to where rank 0 is now.

        Returns:
            That place; as far as is known, the same as before.
        """
        if engine.in_touch or place.kind == "ipc":
            return place
        lookup, settings = self._lookup, self._settings
        if lookup is None or lookup.done():
            self._lookup = look_up(
                settings.master_addr,
                settings.master_port,
                secret=settings.secret is not None,
            )
        if lookup is None or not lookup.done() or lookup.exception() is not None:
            return place  # it is not known, or not known as yet
        found = lookup.result()
        if found != place:
            _log.info("rank 0 is at %s now, no longer at %s", found, place)
            engine.move(found)
        return found


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
    if _is_refused(engine):
        finding = look(place, LOOK_TIMEOUT)
        if finding is Finding.CURVE:
            raise AuthenticationError(
                f"rank 0 at {place} refuses this replica's secret: give every replica "
                "the same ZCOLL_SECRET (or secret=, ZCOLL_SECRET_FILE)"
            )
        if finding is Finding.NULL:
            raise AuthenticationError(
                f"what listens at {place} is a ZeroMQ socket without a secret, and so "
                "not rank 0 of this group: check the master address and port"
            )
    if place.kind == "ipc":
        for host in ("127.0.0.1", "::1"):
            other = Place("tcp", host, place.port)
            if look(other, LOOK_TIMEOUT) is Finding.CURVE:
                raise AuthenticationError(
                    f"rank 0 has a secret (it listens at {other}), this replica has "
                    "none: set ZCOLL_SECRET or ZCOLL_SECRET_FILE to the same value here"
                )
    elif place.loopback:
        other = Place("ipc", "", place.port)
        if look(other, LOOK_TIMEOUT) is Finding.NULL:
            raise AuthenticationError(
                f"this replica has a secret, rank 0 has none (it listens at {other}): "
                "give rank 0 the same ZCOLL_SECRET, or unset it here"
            )


def _is_refused(engine: Spoke) -> bool:
    """Whether handshakes are refused, again and again.

    One that only gets no answer fails every 10 s (``HANDSHAKE_IVL``); one that is
    refused does so at every reconnect, twice a second.
    """
    refusals = list(engine.refusals)
    recent = [at for at in refusals if refusals[-1] - at < 2 * REFUSED_LIMIT]
    return len(recent) >= 3 and recent[-1] - recent[0] >= REFUSED_LIMIT

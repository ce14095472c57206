"""Rank 0's short way: the others' parts are gathered and folded by who waits."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

from zcoll.engine.engine import Engine
from zcoll.engine.shield import Woken
from zcoll.engine.short_way import Interrupted, Overtaken
from zcoll.errors import ProtocolError
from zcoll.protocol.gathering import Gathering
from zcoll.wire import Kind, parse
from zcoll.worker import user_code

if TYPE_CHECKING:
    from zcoll.engine.folding import Folder
    from zcoll.engine.request import Request
    from zcoll.engine.shield import NoShield, Shield
    from zcoll.payload import Buffer, Payload
    from zcoll.protocol.coordinator import Coordinator
    from zcoll.protocol.events import Peer
    from zcoll.transport.lane.hub import HubLanes
    from zcoll.transport.sockets import Router

BATCH = 256  # messages taken in before outcomes go out


class Gatherer(Engine):
    """The engine of rank 0, as far as its own calls go the short way."""

    # Made by the engine: what it gathers by.
    _coordinator: Coordinator
    _router: Router
    _lanes: HubLanes
    _folder: Folder

    def _go_short_way(
        self, request: Request, guard: Shield | NoShield
    ) -> Payload | None:
        folds = request.made.operation.folding is not None
        if folds and not self._folder.is_quick(request.reduce_fn):
            return None
        gathering = Gathering.begin(self._coordinator, self._replica, request.made)
        if gathering is None:
            return None
        results = None
        try:
            while not gathering.complete:
                if not self._gather(gathering, guard):
                    return None
            if folds:
                results = self._fold_at_once(gathering, request, guard)
        except Woken:
            self._release(gathering)
            raise
        if folds and results is None:
            return None
        request.seq = gathering.seq
        return self._conclude(gathering, results)

    def _gather(self, gathering: Gathering, guard: Shield | NoShield) -> bool:
        """Sleep once, and take parts; False if the gathering is over."""
        ready = self._sleep_briefly(guard)
        if ready is None:
            self._release(gathering)
            return False
        goes_on, socket = True, self._router.socket in ready
        for peer, frames in self._lanes.receive(BATCH, socket=socket, everything=False):
            if goes_on:
                goes_on = gathering.take(peer, frames)
                if goes_on:
                    continue
                self._release(gathering)
            self._take_in(peer, frames, time.monotonic())
        if self._lanes.busy:  # outcomes of the call before may wait for room
            self._lanes.flush()
            self._lanes.ring()
        if not goes_on:
            self._obey(time.monotonic())
            self._lanes.ring()
        return goes_on

    def _release(self, gathering: Gathering) -> None:
        """Let what is held go the long way."""
        now = time.monotonic()
        for peer, frames in gathering.held:
            self._take_in(peer, frames, now)
        gathering.held.clear()

    def _fold_at_once(
        self, gathering: Gathering, request: Request, guard: Shield | NoShield
    ) -> list[Payload] | None:
        """Fold what is gathered, without the wheel.

        Returns:
            The results; None if the gathering is over: the fold has failed, or another
            thread has driven meanwhile.

        Raises:
            Overtaken: Another thread drives.
            Interrupted: By what a signal's handler has raised.
        """
        folding, reduce_fn = request.made.operation.folding, request.reduce_fn
        assert folding is not None
        assert reduce_fn is not None
        payloads = gathering.payloads.values()

        def fold() -> list[Payload] | None:
            return self._folder.fold_at_once(folding, payloads, reduce_fn)

        # Whoever drives next does this first, if that is not this thread.
        release = functools.partial(self._release, gathering)
        self._inbox.append(release)
        self._lend_wheel()
        results = None
        try:
            with user_code():
                results = guard.run(fold)
        except Exception:
            if guard.raised is None:  # else it is a signal's, between two steps
                raise
        finally:
            if not self._take_wheel(request.made.group):
                raise Overtaken(guard.raised)
        if guard.raised is not None:
            raise Interrupted(guard.raised)
        if results is None or not self._inbox or self._inbox[0] is not release:
            return None
        self._inbox.popleft()
        return results

    def _conclude(self, gathering: Gathering, results: list[Payload] | None) -> Payload:
        now = time.monotonic()
        frames, outcome = gathering.conclude(results, now)
        for peer, frame in frames:
            if not self._lanes.send_numbered(peer, [frame]):
                self._coordinator.unreachable(peer, now)
        if not self._coordinator.silent:  # what goes in chunks
            self._obey(now)
        self._lanes.ring()
        return outcome

    def _take_in(self, peer: Peer, frames: list[Buffer], now: float) -> None:
        try:
            message = parse(frames)
        except ProtocolError as error:
            self._coordinator.misbehaved(peer, error)
            return
        if message.kind is Kind.HELLO:
            self._lanes.drop(peer)  # from here on the stream starts anew
        self._coordinator.receive(peer, message, now)

    def _obey(self, now: float) -> None:
        """Carry out what the machines have decided."""
        raise NotImplementedError

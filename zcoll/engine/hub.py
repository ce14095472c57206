"""The engine of rank 0: the coordinator, and rank 0's own replica beside it."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

import zmq

from zcoll.engine.engine import Key
from zcoll.engine.folding import Folder
from zcoll.engine.functions import name_function
from zcoll.engine.gatherer import BATCH, Gatherer
from zcoll.engine.lookout import Lookout
from zcoll.engine.loop import Errand
from zcoll.payload import Payload
from zcoll.protocol.events import LOCAL, Deliver, Fail, Fold, Forget, Note, Send
from zcoll.transport.lane.hub import HubLanes
from zcoll.transport.monitor import Event

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from zcoll.codec import Loads
    from zcoll.engine.request import Request
    from zcoll.errors import CollectiveError, GroupError
    from zcoll.launchers.settings import Liveness
    from zcoll.protocol.coordinator import Coordinator
    from zcoll.protocol.events import Identity, Peer
    from zcoll.protocol.replica import Replica
    from zcoll.transport.address import Place
    from zcoll.transport.sockets import Router

# Seconds after a connection has ended at which all peers are probed. libzmq tells
# that one ended, not whose; and the first send after it may still succeed.
PROBES = (0.0, 0.01, 0.05, 0.2)


class Hub(Gatherer):
    """A ROUTER socket, the coordinator, and a replica's machine."""

    def __init__(
        self,
        identity: Identity,
        replica: Replica,
        place: Place,
        liveness: Liveness,
        loads: Loads | None,
        coordinator: Coordinator,
        router: Router,
        *,
        shares_memory: bool,
    ) -> None:
        super().__init__(identity, replica, place, liveness, loads)
        self._coordinator = coordinator
        self._router = router
        self._lanes = HubLanes(
            router, self._bell.fd, self._is_admitted, wanted=shares_memory
        )
        self._lookout = Lookout(self._lanes, identity.num_replicas)
        coordinator.ways = self._lanes.ways
        self._folder = Folder(loads, coordinator.reports.reducing)
        self._brief.append((router.socket, zmq.POLLIN))
        self._waiters: list[threading.Event] = []  # for nobody to need this process
        self._probes: list[float] = []
        for socket in (router.socket, router.monitor, router.zap):
            if socket is not None:
                self._register(socket)

    @property
    def waiting_for(self) -> list[int]:
        """The ranks that are missing."""
        return self._coordinator.membership.absent

    def serve(self, limit: float | None) -> list[int]:
        """Wait until nobody needs this process any more.

        Args:
            limit: Seconds, or None.

        Returns:
            The ranks that still do; none, unless time has run out.
        """
        waiter = threading.Event()
        self._post(lambda: self._waiters.append(waiter))
        endless = limit is None or limit > threading.TIMEOUT_MAX
        if self._ended or waiter.wait(None if endless else limit):
            return []
        return self._coordinator.decisions.users

    def _let_go_of_waiters(self) -> None:
        while self._waiters:
            self._waiters.pop().set()

    def let_go(self) -> None:
        """In a forked child: close its copies of the connections and lanes."""
        super().let_go()
        self._lanes.close()

    def _give_up(self, error: GroupError | None) -> None:
        self._let_go_of_waiters()
        super()._give_up(error)

    # --- the loop ---------------------------------------------------------

    def _pause(self) -> float:
        return 0.005 if self._probes else super()._pause()

    def _receive(self, ready: AbstractSet[Any], now: float) -> None:
        if self._router.zap in ready:
            self._router.admit()
        if self._router.monitor in ready:
            self._note_events(now)
        self._receive_messages(now, socket=self._router.socket in ready)
        if self._lanes.busy:
            self._lanes.flush()

    def _note_events(self, now: float) -> None:
        events = self._router.events()
        if Event.DISCONNECTED in events:
            self._probes = [now + after for after in PROBES]
            self._tick_at = now
            self._coordinator.doubt(now)
        if Event.REFUSED in events:
            text = "a connection broke in its handshake: another secret, or no zcoll?"
            self._log_note(Note(text, topic="knock", warning=True), now)

    def _receive_messages(self, now: float, *, socket: bool) -> None:
        dying = bool(self._probes)  # a lane is emptied before its replica is given up
        for peer, frames in self._lanes.receive(BATCH, socket=socket, everything=dying):
            self._take_in(peer, frames, now)

    def _is_admitted(self, peer: Peer) -> bool:
        return self._coordinator.membership.by_peer(peer) is not None

    def _tick(self, now: float) -> None:
        self._router.cut_clogged(now)
        if self._probes and now >= self._probes[0]:
            self._probes = [at for at in self._probes if at > now]
            self._coordinator.probe()
        if self._probes:
            self._tick_at = min(self._tick_at, self._probes[0])
            for peer in self._lanes.unreachable():
                self._coordinator.unreachable(peer, now)
        self._lanes.retain(self._coordinator.membership.peers)
        self._lanes.tick(now)
        self._coordinator.tick(now)
        super()._tick(now)

    def _obey(self, now: float) -> None:
        while True:
            for instruction in self._coordinator.take():
                if isinstance(instruction, Send):
                    self._dispatch(instruction, now)
                elif isinstance(instruction, Fold):
                    self._start_fold(instruction)
                elif isinstance(instruction, Forget):
                    self._folder.release(instruction.group)
                else:
                    self._inform(instruction, now)
            self._give_up_broken_lanes()
            answers = self._replica.take()
            if not answers and self._coordinator.silent:
                break
            for answer in answers:
                if isinstance(answer, Send):
                    self._coordinator.receive(LOCAL, answer.message, now)
                else:
                    self._inform(answer, now)
        # Only now: what rank 0 has said before it waits has been taken in.
        if self._waiters and not self._coordinator.decisions.serving:
            self._let_go_of_waiters()

    def _give_up_broken_lanes(self) -> None:
        for peer, error in self._lanes.take_broken():
            self._coordinator.misbehaved(peer, error)

    def _dispatch(self, send: Send, now: float) -> None:
        if send.peer == LOCAL:
            self._replica.receive(send.message, now)
        elif not self._lanes.send(send.peer, send.message):
            self._coordinator.unreachable(send.peer, now)

    def _is_busy(self) -> bool:
        return self._coordinator.busy or super()._is_busy()

    def _state_of_drain(self) -> tuple[bool, Any]:
        return self._coordinator.drained, self._coordinator.progress

    def _hurry(self) -> None:
        super()._hurry()
        self._coordinator.hurry()

    def _close(self) -> None:
        self._folder.stop()
        self._lanes.close()
        self._router.close()

    # --- the fold ---------------------------------------------------------

    def _number(self, request: Request) -> int:
        seq = super()._number(request)
        if request.reduce_fn is not None:
            key = (request.made.group, seq)
            self._coordinator.reports.reducing[key] = name_function(request.reduce_fn)
        return seq

    def _inform(self, instruction: object, now: float) -> None:
        super()._inform(instruction, now)
        if isinstance(instruction, Deliver | Fail):
            key = (instruction.group, instruction.seq)
            self._coordinator.reports.reducing.pop(key, None)

    def _start_fold(self, fold: Fold) -> None:
        call = fold.call
        own = call.contributors[0] == self.identity.rank
        reduce_fn = self._reduce_fns[fold.group, call.seq] if own else None
        site = call.sites.get(self.identity.rank, "")
        errand = Errand(
            fold.group, functools.partial(self._fold, fold, reduce_fn, site)
        )
        if fold.group == self._host and self._folder.is_brief(fold, reduce_fn):
            self._errands.append(errand)
        else:
            self._delegate(errand)

    def _delegate(self, errand: Errand) -> None:
        self._folder.submit(errand.group, lambda: self._post(errand.run()))

    def _fold(
        self, fold: Fold, reduce_fn: Callable[[Any, Any], Any] | None, site: str
    ) -> Callable[[], object]:
        """Fold, where the program's code may run; give the job that reports it."""
        key = (fold.group, fold.call.seq)
        results, error = self._folder.fold(fold, reduce_fn, site)
        cause = None
        if error is not None:
            cause, error.__cause__ = error.__cause__, None
        return functools.partial(self._folded, key, results, error, cause)

    def _folded(
        self,
        key: Key,
        results: list[Payload] | None,
        error: CollectiveError | None,
        cause: BaseException | None,
    ) -> None:
        if cause is not None and key in self._futures:
            self._causes[key] = cause
        if results is not None or error is not None:
            self._coordinator.reports.reducing.pop(key, None)
        self._coordinator.folded(*key, results, error)

"""The engine of rank 0: the coordinator, and rank 0's own replica beside it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from zcoll import codec
from zcoll.engine.engine import Engine, Request
from zcoll.errors import DecodeError, EncodeError, ProtocolError, ReduceError
from zcoll.protocol.events import LOCAL, Deliver, Fail, Fold, Note, Send
from zcoll.reducer import Fold as Reduction
from zcoll.transport.monitor import Event
from zcoll.wire import Payload, pack, parse
from zcoll.worker import Worker, user_code

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from zcoll.codec import Loads
    from zcoll.engine.loop import Errand
    from zcoll.errors import CollectiveError
    from zcoll.launchers.settings import Liveness
    from zcoll.protocol.coordinator import Coordinator
    from zcoll.protocol.events import Identity
    from zcoll.protocol.replica import Replica
    from zcoll.transport.address import Place
    from zcoll.transport.sockets import Router

BATCH = 256  # messages taken in before outcomes go out

# Seconds after a connection has ended at which all peers are probed. libzmq tells
# that one ended, not whose; and the first send after it may still succeed.
PROBES = (0.0, 0.01, 0.05, 0.2)


class Hub(Engine):
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
    ) -> None:
        super().__init__(identity, replica, place, liveness, loads)
        self._coordinator = coordinator
        self._router = router
        self._reductions: dict[int, Reduction] = {}  # by seq; the folder's own
        self._reduce_fns: dict[int, tuple[Callable[[Any, Any], Any], str, str]] = {}
        self._folder = Worker("zcoll-fold")
        self._probes: list[float] = []
        for socket in (router.socket, router.monitor, router.zap):
            if socket is not None:
                self._register(socket)

    @property
    def waiting_for(self) -> list[int]:
        """The ranks that are missing."""
        return self._coordinator.membership.absent

    # --- the loop ---------------------------------------------------------

    def _pause(self) -> float:
        return 0.005 if self._probes else super()._pause()

    def _receive(self, ready: AbstractSet[Any], now: float) -> None:
        if self._router.zap in ready:
            self._router.admit()
        if self._router.monitor in ready:
            self._note_events(now)
        if self._router.socket in ready:
            self._receive_messages(now)

    def _note_events(self, now: float) -> None:
        events = self._router.events()
        if Event.DISCONNECTED in events:
            self._probes = [now + after for after in PROBES]
        if Event.REFUSED in events:
            text = "a connection broke in its handshake: another secret, or no zcoll?"
            self._log_note(Note(text, topic="knock", warning=True), now)

    def _receive_messages(self, now: float) -> None:
        for _ in range(BATCH):
            received = self._router.receive()
            if received is None:
                break
            peer, frames = received
            try:
                message = parse(frames)
            except ProtocolError as error:
                self._coordinator.misbehaved(peer, error)
            else:
                self._coordinator.receive(peer, message, now)

    def _tick(self, now: float) -> None:
        self._router.cut_clogged(now)
        if self._probes and now >= self._probes[0]:
            self._probes = [at for at in self._probes if at > now]
            self._coordinator.probe()
        self._coordinator.tick(now)
        super()._tick(now)

    def _obey(self, now: float) -> None:
        busy = True
        while busy:
            busy = False
            for instruction in self._coordinator.take():
                busy = True
                if isinstance(instruction, Send):
                    self._dispatch(instruction, now)
                elif isinstance(instruction, Fold):
                    self._start_fold(instruction)
                else:
                    self._inform(instruction, now)
            for answer in self._replica.take():
                busy = True
                if isinstance(answer, Send):
                    self._coordinator.receive(LOCAL, answer.message, now)
                else:
                    self._inform(answer, now)

    def _dispatch(self, send: Send, now: float) -> None:
        if send.peer == LOCAL:
            self._replica.receive(send.message, now)
        elif not self._router.send(send.peer, pack(send.message)):
            self._coordinator.unreachable(send.peer, now)

    def _state_of_drain(self) -> tuple[bool, Any]:
        return self._coordinator.drained, self._coordinator.progress

    def _hurry(self) -> None:
        super()._hurry()
        self._coordinator.hurry()

    def _close(self) -> None:
        self._folder.stop()
        self._router.close()

    # --- the fold ---------------------------------------------------------

    def _take_call(self, request: Request) -> int:
        seq = super()._take_call(request)
        if request.reduce_fn is not None:
            name, site = request.operation.name, request.site
            self._reduce_fns[seq] = (request.reduce_fn, name, site)
            self._coordinator.reports.reducing[seq] = _name(request.reduce_fn)
        return seq

    def _inform(self, instruction: object, now: float) -> None:
        super()._inform(instruction, now)
        if isinstance(instruction, Deliver | Fail):
            self._reduce_fns.pop(instruction.seq, None)
            self._coordinator.reports.reducing.pop(instruction.seq, None)

    def _start_fold(self, fold: Fold) -> None:
        errand = functools.partial(self._run_fold, fold, *self._reduce_fns[fold.seq])
        if self._hosted and self._is_small(fold):
            self._errands.append(errand)
        else:
            self._delegate(errand)

    def _is_small(self, fold: Fold) -> bool:
        """Whether to fold it costs less than to hand it over.

        Nothing is spoilt if this is interrupted: it can be done again.
        """
        whole = fold.last and fold.seq not in self._reductions
        return whole and all(payload.inline for _, payload in fold.operands)

    def _delegate(self, errand: Errand) -> None:
        self._folder.submit(lambda: self._post(errand()))

    def _run_fold(
        self, fold: Fold, reduce_fn: Callable[[Any, Any], Any], name: str, site: str
    ) -> Callable[[], object]:
        """Fold, and give the job that reports it."""
        with user_code():
            result, error = self._fold(fold, reduce_fn)
        cause = None
        if error is not None:
            error.op, error.seq, error.site = name, fold.seq, site
            cause, error.__cause__ = error.__cause__, None
        return functools.partial(self._folded, fold.seq, result, error, cause)

    def _fold(
        self, fold: Fold, reduce_fn: Callable[[Any, Any], Any]
    ) -> tuple[Payload | None, CollectiveError | None]:
        """Fold some operands: this is the user's code."""
        reduction = self._reductions.pop(fold.seq, None) or Reduction(reduce_fn)
        for rank, payload in fold.operands:
            try:
                operand = codec.decode(payload, self.loads)
            except BaseException as error:
                text = (
                    f"its value cannot be unpickled at rank 0: {codec.describe(error)}"
                )
                return None, _failed(DecodeError, text, rank, error)
            try:
                reduction.add(operand)
            except BaseException as error:
                text = f"the reduce function raised {codec.describe(error)}"
                return None, _failed(ReduceError, text, 0, error)
        if not fold.last:
            self._reductions[fold.seq] = reduction
            return None, None
        try:
            result = codec.encode(reduction.result)
        except BaseException as error:
            text = f"the result cannot be pickled: {codec.describe(error)}"
            return None, _failed(EncodeError, text, 0, error)
        result.snapshot()  # the reduce function may have kept what it returned
        return result, None

    def _folded(
        self,
        seq: int,
        result: Payload | None,
        error: CollectiveError | None,
        cause: BaseException | None,
    ) -> None:
        if cause is not None:
            self._causes[seq] = cause
        self._coordinator.folded(seq, result, error)


def _failed(
    kind: type[CollectiveError], text: str, rank: int, error: BaseException
) -> CollectiveError:
    failure = kind(text, rank=rank, remote_traceback=codec.trace(error))
    failure.__cause__ = error
    return failure


def _name(reduce_fn: Callable[[Any, Any], Any]) -> str:
    """A reduce function, as reports name it; not by its own ``__repr__``."""
    name = getattr(reduce_fn, "__qualname__", None)
    return name if isinstance(name, str) else type(reduce_fn).__qualname__

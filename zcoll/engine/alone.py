"""The engine of one replica alone: the same machines, but no thread and no socket."""

from __future__ import annotations

import copy
import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from zcoll import bundle
from zcoll.errors import AbortedError, ClosedError, CollectiveTimeoutError
from zcoll.operations import Folding
from zcoll.payload import EMPTY
from zcoll.protocol.coordinator import Coordinator
from zcoll.protocol.events import LOCAL, Deliver, Fail, Fold, Send, Timing
from zcoll.protocol.link import LocalLink
from zcoll.protocol.replica import Replica
from zcoll.worker import user_code

if TYPE_CHECKING:
    from collections.abc import Callable

    from zcoll.codec import Loads
    from zcoll.engine.request import Request
    from zcoll.futures import Future
    from zcoll.payload import Payload
    from zcoll.protocol.events import Identity

SESSION = 1  # there is nobody who could mistake it


class Alone:
    """Ends every call at once: its result is a copy of what was contributed.

    Args:
        identity: Who this replica is.
        loads: What unpickles values, or None for pickle.
    """

    def __init__(self, identity: Identity, loads: Loads | None) -> None:
        self.identity = identity
        self.loads = loads
        timing = Timing()
        self._coordinator = Coordinator(identity, SESSION, "", timing)
        self._replica = Replica(identity, "", timing, LocalLink())
        self._lock = threading.Lock()
        self._released: deque[int] = deque()  # groups; by finalizers, at any moment
        self._left = False
        self._aborted: str | None = None
        self._pid = os.getpid()
        self._coordinator.announce()
        self._pump()

    @property
    def over(self) -> bool:
        """Whether this replica has left."""
        return self._left or self._aborted is not None

    def pending(self, group: int) -> list[Future[Any]]:
        """The calls that have not ended: none."""
        return []

    def call(self, request: Request) -> Payload | None:
        """Make a call; it has ended when this returns, by its future.

        Raises:
            ClosedError: This replica has left, or the process is a fork.
        """
        self.submit(request, waits=True)
        return None

    def submit(self, request: Request, *, waits: bool) -> None:
        """Make a call.

        Raises:
            ClosedError: This replica has left, or the process is a fork.
        """
        self.check()
        made, future = request.made, request.future
        if made.payload is not None:
            made.payload.snapshot()
        with self._lock:
            future.seq = self._replica.calling.call(made)
            (ended,) = self._pump()
        # Outside the lock: callbacks are the program's code.
        if isinstance(ended, Deliver):
            future.deliver(ended.payload)
        else:
            error = copy.copy(ended.error)
            error.__cause__ = made.error and made.error.__cause__
            future.fail(error)

    def _pump(self) -> list[Deliver | Fail]:
        """Let the machines talk until they are done."""
        while self._released:
            self._replica.calling.close(self._released.popleft())
        ended: list[Deliver | Fail] = []
        busy = True
        while busy:
            busy = False
            for instruction in self._coordinator.take():
                busy = True
                if isinstance(instruction, Send) and instruction.peer == LOCAL:
                    self._replica.receive(instruction.message, 0.0)
                elif isinstance(instruction, Fold):
                    key = (instruction.group, instruction.call.seq)
                    self._coordinator.folded(*key, _fold(instruction), None)
            for answer in self._replica.take():
                busy = True
                if isinstance(answer, Send):
                    self._coordinator.receive(LOCAL, answer.message, 0.0)
                elif isinstance(answer, Deliver | Fail):
                    ended.append(answer)
        return ended

    # --- groups -----------------------------------------------------------

    def leave_group(self, group: int) -> None:
        """Make no more calls in a group."""
        self.check()
        with self._lock:
            self._replica.calling.leave(group)
            self._pump()

    def close_group(self, group: int, reason: str = "") -> None:
        """Release a group, with the next call: a finalizer may interrupt this one."""
        self._released.append(group)

    def group_over(self, group: int) -> bool:
        """Whether a group has ended, or is released."""
        return self.over or self._replica.calling.over(group)

    def active(self, group: int) -> list[int]:
        """Who still makes calls in a group."""
        return self._replica.calling.active(group)

    def serve(self, limit: float | None) -> list[int]:
        """Wait until nobody needs this process any more: nobody does."""
        return []

    # --- the end ----------------------------------------------------------

    def check(self) -> None:
        """Refuse calls that can no longer be made.

        Raises:
            ClosedError: This replica has left, or the process is a fork.
        """
        self.check_process()
        if self._aborted is not None:
            text = f"replica 0 aborted the group: {self._aborted}"
            raise AbortedError(text, rank=0, reason=self._aborted)
        if self._left:
            raise ClosedError("the group is closed: initialize again")

    def check_process(self) -> None:
        """Refuse calls in a forked child.

        Raises:
            ClosedError: This is one.
        """
        if os.getpid() != self._pid:
            raise ClosedError(
                "this process was forked from a replica: initialize again"
            )

    def keep(self, payload: Payload) -> None:
        """Copy what a call still needs: nothing, since every call has ended."""

    def abort(self, reason: str) -> None:
        """End the group."""
        self.check()
        self._aborted = reason

    def leave(self, reason: str = "", *, wait: bool = True) -> None:
        """Leave the group."""
        self._left = True

    def wait(self, future: Future[Any], timeout: float | None) -> None:
        """Wait for a call: none is ever waited for."""

    def explain(self, future: Future[Any], timeout: float) -> Exception:
        """Never asked: every call has ended when it returns."""
        return CollectiveTimeoutError("", missing=[], timeout=timeout, future=future)

    def run_callback(self, job: Callable[[], None]) -> None:
        """Run a callback; nobody is kept waiting by it."""
        with user_code():  # what would hang in a larger group must not work here
            job()


def _fold(fold: Fold) -> list[Payload]:
    """The fold of one operand needs no function."""
    _, payload = fold.operands[0]
    if fold.call.operation.folding is Folding.BEFORE:
        return [EMPTY]
    if fold.call.operation.folding is Folding.ITEMS:
        return [item for item in bundle.split(payload) if item is not None]
    return [payload]

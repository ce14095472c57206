"""The engine of one replica alone: no port, no thread, no socket."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from zcoll.errors import AbortedError, ClosedError, CollectiveTimeoutError
from zcoll.futures import Future
from zcoll.worker import user_code

if TYPE_CHECKING:
    from collections.abc import Callable

    from zcoll.codec import Loads
    from zcoll.engine.engine import Request
    from zcoll.operations import Operation
    from zcoll.protocol.events import Identity
    from zcoll.wire import Payload


class Alone:
    """Ends every call at once: its result is a copy of what was contributed.

    Args:
        identity: Who this replica is.
        loads: What unpickles values, or None for pickle.
    """

    def __init__(self, identity: Identity, loads: Loads | None) -> None:
        self.identity = identity
        self.loads = loads
        self._calls = 0
        self._left = False
        self._aborted: str | None = None
        self._pid = os.getpid()

    @property
    def pending(self) -> list[Future[Any]]:
        """The calls that have not ended: none."""
        return []

    @property
    def over(self) -> bool:
        """Whether this replica has left."""
        return self._left or self._aborted is not None

    def new_future(self, operation: Operation, site: str) -> Future[Any]:
        """A future for a call of this engine."""
        return Future(operation, site, self)

    def submit(self, request: Request, *, waits: bool) -> None:
        """Make a call.

        Raises:
            ClosedError: This replica has left, or the process is a fork.
        """
        self.check()
        self._calls += 1
        future = request.future
        future.seq = self._calls
        if request.error is not None:
            request.error.seq = self._calls
            future.fail(request.error)
            return
        if request.payload is not None:
            request.payload.snapshot()
        future.deliver(request.payload)

    def check(self) -> None:
        """Refuse calls that can no longer be made.

        Raises:
            ClosedError: This replica has left, or the process is a fork.
        """
        if os.getpid() != self._pid:
            raise ClosedError(
                "this process was forked from a replica: initialize again"
            )
        if self._aborted is not None:
            text = f"replica 0 aborted the group: {self._aborted}"
            raise AbortedError(text, rank=0, reason=self._aborted)
        if self._left:
            raise ClosedError("the group is closed: initialize again")

    def keep(self, payload: Payload) -> None:
        """Copy what a call still needs: nothing, since every call has ended."""

    def abort(self, reason: str) -> None:
        """End the group."""
        self.check()
        self._aborted = reason

    def leave(self, reason: str = "", *, wait: bool = True) -> None:
        """Leave the group."""
        self._left = True

    def check_process(self) -> None:
        """Refuse calls in a forked child.

        Raises:
            ClosedError: This is one.
        """
        if os.getpid() != self._pid:
            raise ClosedError(
                "this process was forked from a replica: initialize again"
            )

    def wait(self, future: Future[Any], timeout: float | None) -> None:
        """Wait for a call: none is ever waited for."""

    def explain(self, future: Future[Any], timeout: float) -> Exception:
        """Never asked: every call has ended when it returns."""
        return CollectiveTimeoutError("", missing=[], timeout=timeout, future=future)

    def run_callback(self, job: Callable[[], None]) -> None:
        """Run a callback; nobody is kept waiting by it."""
        with user_code():  # what would hang in a larger group must not work here
            job()

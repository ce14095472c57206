"""The result of an asynchronous call."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import threading
import time
from concurrent.futures._base import PENDING
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from zcoll import codec
from zcoll.errors import DecodeError
from zcoll.worker import refuse_inside_user_code

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from zcoll.payload import Payload
    from zcoll.protocol.events import Contribution

T = TypeVar("T")


class Owner(Protocol):
    """What a future needs of the engine that carries out its call."""

    def check_process(self) -> None:
        """Refuse to wait in a forked child."""

    def wait(self, future: Future[Any], timeout: float | None) -> None:
        """Wait until a future has ended, or for so many seconds."""

    def explain(self, future: Future[Any], timeout: float) -> Exception:
        """The error of a future that has run out of time."""

    def run_callback(self, job: Callable[[], None]) -> None:
        """Run a callback where it keeps nobody waiting."""


_log = logging.getLogger("zcoll.futures")
_ending = threading.RLock()  # of any future; held for microseconds


class _Condition:
    """A future's condition, made when somebody first waits by it.

    To make one takes longer than all the rest of a future, and a thread that drives
    needs none. It takes its own place in the future.
    """

    def __get__(self, future: Future[Any], _: object) -> threading.Condition:
        with _ending:
            made = future.__dict__.get("_condition")
            if made is None:
                made = future.__dict__["_condition"] = threading.Condition()
                if future.done():
                    future._tell()
            return made


class Future(concurrent.futures.Future[T], Generic[T]):
    """A ``concurrent.futures.Future`` that can also be awaited.

    ``concurrent.futures.wait``, ``as_completed`` and ``asyncio.wrap_future`` work
    with it. Results may be collected in any order. ``cancel()`` is False: one
    replica cannot take a call back. Callbacks run on a thread of their own.

    Attributes:
        operation: What was called.
        site: The user's line that called it.
        group: The number of the group that it was called in.
        group_name: What errors call that; "" is the world.
        seq: The call's number in its group; 0 until it is numbered.
        waiting_since: Since when the program waits for it, by the monotonic clock,
            or None.
    """

    _condition = _Condition()

    def __init__(
        self,
        made: Contribution,
        owner: Owner,
        decode: Callable[[Payload], T],
        group_name: str = "",
    ) -> None:
        # What the base class makes, but for its condition: see below.
        self._state = PENDING
        self._result: Any = None
        self._exception: BaseException | None = None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []
        self.operation = made.operation
        self.site = made.site
        self.group = made.group
        self.group_name = group_name
        self.seq = 0
        self.waiting_since: float | None = None
        self._owner = owner
        self._decoder = decode
        self._ended = False
        self._error: Exception | None = None
        self._decoding = threading.Lock()
        self._payload: Payload | None = None
        self._value: Any = None
        self._decode_error: DecodeError | None = None

    def deliver(self, payload: Payload | None) -> None:
        """The engine's side: the call has this outcome."""
        self._payload = payload  # decoded when it is asked for
        self._end()

    def fail(self, error: Exception) -> None:
        """The engine's side: the call has this error."""
        self._error = error
        self._end()

    def _end(self) -> None:
        with _ending:
            self._ended = True
            known = "_condition" in self.__dict__
        if known:
            self._tell()

    def _tell(self) -> None:
        """Tell the base class that the call has ended, for those who wait by it."""
        if self._error is not None:
            self.set_exception(self._error)
        else:
            self.set_result(cast("T", None))

    def done(self) -> bool:
        """Whether the call has ended; the base class takes a lock to tell."""
        return self._ended

    def running(self) -> bool:
        """Whether the call has not ended."""
        return not self._ended

    def cancel(self) -> bool:
        """Do nothing, and say so: one replica cannot take a call back."""
        return False

    def result(self, timeout: float | None = None) -> T:
        """Wait for the call's result.

        Args:
            timeout: The limit in seconds, or None for no limit.

        Returns:
            The result. Every call of this method gives the same object.

        Raises:
            CollectiveTimeoutError: The call did not end in time. It is still in
                flight: wait again.
            CollectiveError: The call failed; the group goes on.
            GroupError: The group is over.
            ReentrantCallError: Called inside a reduce function or a callback
                before the call has ended.
        """
        self._wait(timeout)
        if self._error is not None:
            super().result()
        self._decode()
        if self._decode_error is not None:
            raise self._decode_error
        value: T = self._value
        return value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the call's error; None if it has a result.

        Args:
            timeout: The limit in seconds, or None for no limit.

        Raises:
            CollectiveTimeoutError: The call did not end in time.
            ReentrantCallError: As for :meth:`result`.
        """
        self._wait(timeout)
        if self._error is not None:
            return self._error
        self._decode()
        return self._decode_error

    def add_done_callback(
        self, fn: Callable[[concurrent.futures.Future[T]], object]
    ) -> None:
        """Call ``fn(future)`` once the call has ended, on a thread for callbacks.

        What it raises is logged and ignored, as by any future.
        """

        def run() -> None:
            try:
                fn(self)
            except Exception:
                _log.exception("exception calling callback for %r", self)

        super().add_done_callback(lambda _: self._owner.run_callback(run))

    def __await__(self) -> Generator[Any, None, T]:
        """Wait without blocking the event loop.

        Cancelling the task that awaits does not cancel the call.
        """
        import asyncio  # noqa: PLC0415 - who awaits has it; importing it takes 20 ms

        self._note_wait()
        return asyncio.wrap_future(self).__await__()

    def _wait(self, timeout: float | None) -> None:
        if self._ended:
            return
        self._owner.check_process()
        refuse_inside_user_code("waiting for a result")
        self._note_wait()
        self._owner.wait(self, timeout)
        if not self._ended:
            error = self._owner.explain(self, timeout or 0.0)
            if not self._ended:  # else it ended while the question was on its way
                raise error

    def block(self, timeout: float) -> None:
        """The engine's side: wait on this thread, while another one works."""
        # What is too long for a lock is no limit.
        endless = timeout > threading.TIMEOUT_MAX
        with contextlib.suppress(concurrent.futures.TimeoutError):
            super().exception(None if endless else timeout)

    def _note_wait(self) -> None:
        if self.waiting_since is None:
            self.waiting_since = time.monotonic()

    def _decode(self) -> None:
        """Unpickle the outcome, once, on the thread that asks for it."""
        with self._decoding:
            payload = self._payload
            if payload is None:
                return
            try:
                self._value = self._decoder(payload)
            except Exception as error:
                call = self.operation.name, self.seq, self.site, self.group_name
                self._decode_error = decode_error(error, *call)
            self._payload = None  # only now: an interrupt must leave it for the next


def decode_error(
    cause: Exception, op: str, seq: int, site: str, group_name: str
) -> DecodeError:
    """What the caller gets of an outcome that cannot be unpickled."""
    text = f"its result cannot be unpickled here: {codec.describe(cause)}"
    error = DecodeError(text, op=op, seq=seq, site=site, group=group_name)
    error.__cause__ = cause
    return error

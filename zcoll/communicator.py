"""A replica's handle on its group: every collective is a method of it."""

from __future__ import annotations

import concurrent.futures
import threading
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from zcoll import codec, operations
from zcoll.callsite import call_site
from zcoll.engine import exits
from zcoll.engine.alone import Alone
from zcoll.engine.engine import Engine, Request
from zcoll.errors import (
    ClosedError,
    ConfigurationError,
    EncodeError,
    ReplicaExitedError,
)
from zcoll.launchers.settings import check_timeout
from zcoll.reducer import default_reduce_fn
from zcoll.worker import refuse_inside_user_code

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from zcoll.futures import Future
    from zcoll.launchers.settings import Settings
    from zcoll.operations import Operation

T = TypeVar("T")


class Communicator:
    """A group of replicas, as one of them sees it. Made by :func:`connect`.

    Collectives are called in the same order on every replica. As a context manager
    it ends with :meth:`teardown`, or with :meth:`close` when the block raises.
    Threads may share it; the order of their calls is then the program's to keep.

    Attributes:
        replica_rank: This replica's rank, 0 to ``num_replicas - 1``.
        num_replicas: The size of the group.
    """

    def __init__(self, engine: Engine | Alone, settings: Settings) -> None:
        self.replica_rank = engine.identity.rank
        self.num_replicas = settings.num_replicas
        self._engine = engine
        self._call_timeout = settings.call_timeout
        self._ending: Future[None] | None = None
        self._ending_lock = threading.RLock()
        if isinstance(engine, Engine):
            exits.watch(engine, settings.report)
        # One that is dropped without a word ends like a program without teardown.
        self._finalizer = weakref.finalize(self, engine.leave, wait=False)
        self._finalizer.atexit = False  # then it is ``exits``' turn

    def __repr__(self) -> str:
        return f"<Communicator rank {self.replica_rank} of {self.num_replicas}>"

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child's copy of its parent's: it is of no use."""
        try:
            self._engine.check_process()
        except ClosedError:
            return True
        return False

    # --- collectives ------------------------------------------------------

    def allreduce(
        self,
        value: T,
        reduce_fn: Callable[[T, T], T] = default_reduce_fn,
        *,
        timeout: float | None = None,
    ) -> T:
        """Reduce the values of all replicas to one, which everybody gets.

        The reduction is a left fold in rank order, ``f(f(f(x0, x1), x2), x3)``, by
        rank 0's function; it need not commute or associate.

        Args:
            value: This replica's value; any object that pickle or cloudpickle
                takes. It is never changed, nor part of the result.
            reduce_fn: Takes two values and returns one; it may change the first.
                Adds (``a += b``) by default.
            timeout: The limit in seconds. None means ``ZCOLL_TIMEOUT``, or no limit.

        Returns:
            The reduced value: a new object on every replica.

        Raises:
            ConfigurationError: ``reduce_fn`` cannot be called.
            EncodeError: A replica's value, or the result, cannot be pickled.
            DecodeError: Rank 0 cannot unpickle a value, or this replica the result.
            ReduceError: The reduce function raised at rank 0.
            CollectiveTimeoutError: The call did not end in time. It is still in
                flight: wait on the error's ``.future``.
            GroupError: The group is over: replicas disagree on what is called, or
                one of them is gone.
        """
        result: T = self._call(operations.ALLREDUCE, value, 0, reduce_fn, timeout)
        return result

    def allreduce_async(
        self, value: T, reduce_fn: Callable[[T, T], T] = default_reduce_fn
    ) -> Future[T]:
        """Start an :meth:`allreduce`; its result is collected later, in any order.

        Args:
            value: As for :meth:`allreduce`. It may be changed once this returns.
            reduce_fn: As for :meth:`allreduce`.

        Returns:
            The future result; ``result(timeout)`` and ``await`` give it. What
            :meth:`allreduce` raises, also for a value that cannot be pickled, they
            raise.

        Raises:
            ClosedError: This replica has left the group.
        """
        request = self._submit(operations.ALLREDUCE, value, 0, reduce_fn, keep=False)
        return request.future

    def broadcast(
        self, value: T | None, *, root: int = 0, timeout: float | None = None
    ) -> T:
        """Give everybody the value of one replica.

        Args:
            value: The value, on the root. Ignored, and not sent, elsewhere.
            root: The rank whose value it is; the same on every replica.
            timeout: As for :meth:`allreduce`.

        Returns:
            The root's value: a new object on every replica, the root included.

        Raises:
            ConfigurationError: There is no such root.
            EncodeError: The value cannot be pickled.
            DecodeError: This replica cannot unpickle it.
            CollectiveTimeoutError: As for :meth:`allreduce`.
            GroupError: As for :meth:`allreduce`.
        """
        if isinstance(root, bool) or not hasattr(root, "__index__"):
            raise ConfigurationError(f"root must be a rank, not {root!r}")
        if not 0 <= root < self.num_replicas:
            raise ConfigurationError(
                f"root {root} is out of range: ranks are 0 to {self.num_replicas - 1}"
            )
        result: T = self._call(operations.BROADCAST, value, root, None, timeout)
        return result

    def barrier(self, *, timeout: float | None = None) -> None:
        """Wait until every replica has called it.

        Args:
            timeout: As for :meth:`allreduce`.

        Raises:
            CollectiveTimeoutError: As for :meth:`allreduce`.
            GroupError: As for :meth:`allreduce`.
        """
        self._call(operations.BARRIER, None, 0, None, timeout)

    # --- the end ----------------------------------------------------------

    def teardown(self, *, timeout: float | None = None) -> None:
        """Leave the group together with all others, rank 0 last.

        After an error of the group it only closes, and does not wait. After
        :meth:`close`, or a second time, it does nothing.

        Args:
            timeout: As for :meth:`allreduce`. When it runs out the group is still
                there: call it again, or :meth:`close`.

        Raises:
            MismatchError: Others call something else, or make more calls.
            CollectiveTimeoutError: Not everybody has called it in time.
            GroupError: The group ended otherwise while it waited. (It does not mind
                replicas that have left without a reason.)
            ReentrantCallError: Called inside a reduce function or a callback.
        """
        limit = self._limit(timeout)
        refuse_inside_user_code("teardown")
        if self._engine.over:
            self._engine.leave()
            return
        try:
            with self._ending_lock:
                if self._ending is None:
                    request = self._submit(
                        operations.TEARDOWN, None, 0, None, keep=False
                    )
                    self._ending = request.future
            self._ending.result(limit)
            # Large results of earlier calls may still be on their way.
            concurrent.futures.wait(self._engine.pending, limit)
        except ReplicaExitedError as error:
            if error.reason:
                raise
        finally:
            if self._ending is not None and self._ending.done():
                self._engine.leave()

    def close(self, reason: str = "") -> None:
        """Leave the group alone and at once; what was sent still counts.

        Later calls of the others raise ``ReplicaExitedError``. It waits until what
        was sent has arrived, and ends 2 seconds after the last progress.

        Args:
            reason: Why; part of the others' error.
        """
        self._engine.leave(str(reason))

    def abort(self, reason: str) -> None:
        """End the group on every replica at once: this one cannot go on.

        Every call that is not decided yet, and every later one, raises
        ``AbortedError`` with the reason, here too.

        Args:
            reason: Why.

        Raises:
            ClosedError: This replica has left the group.
        """
        self._engine.abort(str(reason))

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.teardown()
        else:
            self.close(codec.describe(error))

    # --- how a call is made -----------------------------------------------

    def _call(
        self,
        operation: Operation,
        value: Any,
        root: int,
        reduce_fn: Callable[[Any, Any], Any] | None,
        timeout: float | None,
    ) -> Any:
        limit = self._limit(timeout)
        refuse_inside_user_code(operation.name)
        request = self._submit(operation, value, root, reduce_fn, keep=True)
        try:
            return request.future.result(limit)
        except BaseException:
            if request.payload is not None and not request.future.done():
                # The call is still in flight, and the value is the caller's again.
                self._engine.keep(request.payload)
            raise

    def _submit(
        self,
        operation: Operation,
        value: Any,
        root: int,
        reduce_fn: Callable[[Any, Any], Any] | None,
        *,
        keep: bool,
    ) -> Request:
        """Encode, so that an error has the caller's stack, and hand over."""
        self._engine.check()
        if operation.folds and not callable(reduce_fn):
            raise ConfigurationError(
                f"reduce_fn must be a function of two values, not {reduce_fn!r:.80}"
            )
        site = call_site()
        payload, failure = None, None
        if operation.contributes(self.replica_rank, root):
            try:
                payload = codec.encode(value)
            except Exception as error:
                failure = self._encode_error(operation, site, error)
            if payload is not None and (self.replica_rank == 0 or not keep):
                payload.snapshot()
        future = self._engine.new_future(operation, site)
        request = Request(operation, root, site, payload, failure, reduce_fn, future)
        self._engine.submit(request)
        return request

    def _encode_error(
        self, operation: Operation, site: str, cause: Exception
    ) -> EncodeError:
        """What every replica gets to read of a value that cannot be pickled."""
        error = EncodeError(
            f"its value cannot be pickled: {codec.describe(cause)}",
            op=operation.name,
            rank=self.replica_rank,
            site=site,
            remote_traceback=codec.trace(cause),
        )
        error.__cause__ = cause
        return error

    def _limit(self, timeout: float | None) -> float | None:
        return self._call_timeout if timeout is None else check_timeout(timeout)

"""The collectives that only start: their results are collected later, in any order."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from zcoll import operations
from zcoll.communicator.calling import Calling
from zcoll.reducer import default_reduce_fn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from zcoll.futures import Future

T = TypeVar("T")


class Asynchronous(Calling):
    """The collectives that return a :class:`zcoll.Future`.

    Each takes what its blocking form takes, but for the timeout: that is an argument
    of ``future.result(timeout)``. A value may be changed as soon as the call returns.
    What the blocking form raises, also for a value that cannot be pickled, the future
    raises. The call itself raises only

    - ``ConfigurationError``: an argument is wrong; nothing has been called.
    - ``ClosedError``: this replica has left the group.
    - ``BacklogError``: ``max_pending`` calls are in flight, and this thread must not
      wait for room: it runs an event loop, or a callback.
    """

    def allreduce_async(
        self,
        value: T,
        reduce_fn: Callable[[T, T], T] = default_reduce_fn,
        *,
        tag: str = "",
    ) -> Future[T]:
        """Start an :meth:`allreduce`."""
        return self._start(operations.ALLREDUCE, value, tag, reduce_fn=reduce_fn)

    def reduce_async(
        self,
        value: T,
        reduce_fn: Callable[[T, T], T] = default_reduce_fn,
        *,
        root: int = 0,
        tag: str = "",
    ) -> Future[T | None]:
        """Start a :meth:`reduce`."""
        return self._start(
            operations.REDUCE, value, tag, root=root, reduce_fn=reduce_fn
        )

    def broadcast_async(
        self, value: T | None, *, root: int = 0, tag: str = ""
    ) -> Future[T]:
        """Start a :meth:`broadcast`."""
        return self._start(operations.BROADCAST, value, tag, root=root)

    def gather_async(
        self, value: T, *, root: int = 0, tag: str = ""
    ) -> Future[list[T] | None]:
        """Start a :meth:`gather`."""
        return self._start(operations.GATHER, value, tag, root=root)

    def allgather_async(self, value: T, *, tag: str = "") -> Future[list[T]]:
        """Start an :meth:`allgather`."""
        return self._start(operations.ALLGATHER, value, tag)

    def scatter_async(
        self, values: Sequence[T] | None, *, root: int = 0, tag: str = ""
    ) -> Future[T]:
        """Start a :meth:`scatter`."""
        return self._start(operations.SCATTER, values, tag, root=root)

    def alltoall_async(self, values: Sequence[T], *, tag: str = "") -> Future[list[T]]:
        """Start an :meth:`alltoall`."""
        return self._start(operations.ALLTOALL, values, tag)

    def scan_async(
        self,
        value: T,
        reduce_fn: Callable[[T, T], T] = default_reduce_fn,
        *,
        tag: str = "",
    ) -> Future[T]:
        """Start a :meth:`scan`."""
        return self._start(operations.SCAN, value, tag, reduce_fn=reduce_fn)

    def exscan_async(
        self,
        value: T,
        reduce_fn: Callable[[T, T], T] = default_reduce_fn,
        *,
        tag: str = "",
    ) -> Future[T | None]:
        """Start an :meth:`exscan`."""
        return self._start(operations.EXSCAN, value, tag, reduce_fn=reduce_fn)

    def reduce_scatter_async(
        self,
        values: Sequence[T],
        reduce_fn: Callable[[T, T], T] = default_reduce_fn,
        *,
        tag: str = "",
    ) -> Future[T]:
        """Start a :meth:`reduce_scatter`."""
        return self._start(operations.REDUCE_SCATTER, values, tag, reduce_fn=reduce_fn)

    def barrier_async(self, *, tag: str = "") -> Future[None]:
        """Start a :meth:`barrier`."""
        return self._start(operations.BARRIER, None, tag)

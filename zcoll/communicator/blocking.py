"""The collectives, each of which waits for its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from zcoll import operations
from zcoll.communicator.calling import Calling
from zcoll.reducer import default_reduce_fn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")


class Blocking(Calling):
    """The collectives that wait. Their arguments mean the same everywhere.

    Values are any objects that pickle or cloudpickle takes. They are never changed,
    nor part of a result: results are new objects on every replica. The limit
    ``timeout`` is in seconds; None means ``ZCOLL_TIMEOUT``, or no limit. A ``tag`` is
    any short text: replicas must agree on it, and reports show it. All may raise:

    - ``ConfigurationError``: an argument is wrong; nothing has been called.
    - ``EncodeError``: a replica's value, or a result, cannot be pickled.
    - ``DecodeError``: rank 0 cannot unpickle a value, or this replica its result.
    - ``CollectiveTimeoutError``: the call did not end in time. It is still in flight:
      wait on the error's ``.future``.
    - ``CollectiveError``: the call's root has left the group.
    - ``GroupError``: the group is over: replicas disagree on what is called, or one of
      them is gone.
    """

    def allreduce(
        self,
        value: T,
        reduce_fn: Callable[[T, T], T] = default_reduce_fn,
        *,
        timeout: float | None = None,
        tag: str = "",
    ) -> T:
        """Reduce the values of all replicas to one, which everybody gets.

        The reduction is a left fold in rank order, ``f(f(f(x0, x1), x2), x3)``, by
        the function of the lowest rank; it need not commute or associate.

        Args:
            value: This replica's value.
            reduce_fn: Takes two values and returns one; it may change the first.
                Adds (``a += b``) by default.
            timeout: The limit in seconds. None means ``ZCOLL_TIMEOUT``, or no limit.
            tag: A short text on which replicas must agree.

        Returns:
            The reduced value.

        Raises:
            ReduceError: The reduce function raised.
            ZcollError: As for all collectives; see the class.
        """
        result: T = self._call(
            operations.ALLREDUCE, value, timeout, tag, reduce_fn=reduce_fn
        )
        return result

    def reduce(
        self,
        value: T,
        reduce_fn: Callable[[T, T], T] = default_reduce_fn,
        *,
        root: int = 0,
        timeout: float | None = None,
        tag: str = "",
    ) -> T | None:
        """Reduce the values of all replicas to one, which the root gets.

        Args:
            value: This replica's value.
            reduce_fn: As for :meth:`allreduce`; it is the lowest rank's that is used,
                whoever the root is.
            root: The rank that gets the result; the same on every replica.
            timeout: As for :meth:`allreduce`.
            tag: As for :meth:`allreduce`.

        Returns:
            The reduced value on the root, None elsewhere.

        Raises:
            ReduceError: The reduce function raised.
            ZcollError: As for all collectives; see the class.
        """
        result: T | None = self._call(
            operations.REDUCE, value, timeout, tag, root=root, reduce_fn=reduce_fn
        )
        return result

    def broadcast(
        self,
        value: T | None,
        *,
        root: int = 0,
        timeout: float | None = None,
        tag: str = "",
    ) -> T:
        """Give everybody the value of one replica.

        Args:
            value: The value, on the root. Ignored, and not sent, elsewhere.
            root: The rank whose value it is; the same on every replica.
            timeout: As for :meth:`allreduce`.
            tag: As for :meth:`allreduce`.

        Returns:
            The root's value, on the root too.

        Raises:
            ZcollError: As for all collectives; see the class.
        """
        result: T = self._call(operations.BROADCAST, value, timeout, tag, root=root)
        return result

    def gather(
        self, value: T, *, root: int = 0, timeout: float | None = None, tag: str = ""
    ) -> list[T] | None:
        """Give the root the values of all replicas.

        Args:
            value: This replica's value.
            root: The rank that gets them; the same on every replica.
            timeout: As for :meth:`allreduce`.
            tag: As for :meth:`allreduce`.

        Returns:
            The values in rank order on the root, None elsewhere.
            :data:`zcoll.ABSENT` stands for a replica that has left.

        Raises:
            ZcollError: As for all collectives; see the class.
        """
        result: list[T] | None = self._call(
            operations.GATHER, value, timeout, tag, root=root
        )
        return result

    def allgather(
        self, value: T, *, timeout: float | None = None, tag: str = ""
    ) -> list[T]:
        """Give everybody the values of all replicas.

        Args:
            value: This replica's value.
            timeout: As for :meth:`allreduce`.
            tag: As for :meth:`allreduce`.

        Returns:
            The values in rank order. :data:`zcoll.ABSENT` stands for a replica that
            has left.

        Raises:
            ZcollError: As for all collectives; see the class.
        """
        result: list[T] = self._call(operations.ALLGATHER, value, timeout, tag)
        return result

    def scatter(
        self,
        values: Sequence[T] | None,
        *,
        root: int = 0,
        timeout: float | None = None,
        tag: str = "",
    ) -> T:
        """Give each replica one of the root's values.

        Args:
            values: One value for each rank, on the root. Ignored, and not sent,
                elsewhere.
            root: The rank whose values they are; the same on every replica.
            timeout: As for :meth:`allreduce`.
            tag: As for :meth:`allreduce`.

        Returns:
            The value for this rank.

        Raises:
            CollectiveError: The root gave another number of values; ``.rank`` is its.
            ZcollError: As for all collectives; see the class.
        """
        result: T = self._call(operations.SCATTER, values, timeout, tag, root=root)
        return result

    def alltoall(
        self, values: Sequence[T], *, timeout: float | None = None, tag: str = ""
    ) -> list[T]:
        """Give each replica a value of every replica.

        Args:
            values: One value for each rank.
            timeout: As for :meth:`allreduce`.
            tag: As for :meth:`allreduce`.

        Returns:
            Everybody's value for this rank, in rank order. :data:`zcoll.ABSENT`
            stands for a replica that has left.

        Raises:
            CollectiveError: A replica gave another number of values; ``.rank`` is its.
            ZcollError: As for all collectives; see the class.
        """
        result: list[T] = self._call(operations.ALLTOALL, values, timeout, tag)
        return result

    def scan(
        self,
        value: T,
        reduce_fn: Callable[[T, T], T] = default_reduce_fn,
        *,
        timeout: float | None = None,
        tag: str = "",
    ) -> T:
        """Reduce the values of the replicas up to this one.

        Args:
            value: This replica's value.
            reduce_fn: As for :meth:`allreduce`.
            timeout: As for :meth:`allreduce`.
            tag: As for :meth:`allreduce`.

        Returns:
            The reduction of the values of ranks 0 to this one.

        Raises:
            ReduceError: The reduce function raised.
            ZcollError: As for all collectives; see the class.
        """
        result: T = self._call(
            operations.SCAN, value, timeout, tag, reduce_fn=reduce_fn
        )
        return result

    def exscan(
        self,
        value: T,
        reduce_fn: Callable[[T, T], T] = default_reduce_fn,
        *,
        timeout: float | None = None,
        tag: str = "",
    ) -> T | None:
        """Reduce the values of the replicas before this one.

        Args:
            value: This replica's value.
            reduce_fn: As for :meth:`allreduce`.
            timeout: As for :meth:`allreduce`.
            tag: As for :meth:`allreduce`.

        Returns:
            The reduction of the values of all lower ranks; None on the lowest.

        Raises:
            ReduceError: The reduce function raised.
            ZcollError: As for all collectives; see the class.
        """
        result: T | None = self._call(
            operations.EXSCAN, value, timeout, tag, reduce_fn=reduce_fn
        )
        return result

    def reduce_scatter(
        self,
        values: Sequence[T],
        reduce_fn: Callable[[T, T], T] = default_reduce_fn,
        *,
        timeout: float | None = None,
        tag: str = "",
    ) -> T:
        """Reduce everybody's values for this rank to one.

        Args:
            values: One value for each rank.
            reduce_fn: As for :meth:`allreduce`.
            timeout: As for :meth:`allreduce`.
            tag: As for :meth:`allreduce`.

        Returns:
            The reduction, in rank order, of what the replicas have for this rank.

        Raises:
            ReduceError: The reduce function raised.
            CollectiveError: A replica gave another number of values; ``.rank`` is its.
            ZcollError: As for all collectives; see the class.
        """
        result: T = self._call(
            operations.REDUCE_SCATTER, values, timeout, tag, reduce_fn=reduce_fn
        )
        return result

    def barrier(self, *, timeout: float | None = None, tag: str = "") -> None:
        """Wait until every replica has called it.

        Args:
            timeout: As for :meth:`allreduce`.
            tag: As for :meth:`allreduce`.

        Raises:
            ZcollError: As for all collectives; see the class.
        """
        self._call(operations.BARRIER, None, timeout, tag)

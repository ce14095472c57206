"""A replica's handle on a group: its collectives, the groups within it, its end."""

from __future__ import annotations

import concurrent.futures
import functools
import operator
import threading
import weakref
from typing import TYPE_CHECKING

from zcoll import codec, operations
from zcoll.communicator.asynchronous import Asynchronous
from zcoll.communicator.blocking import Blocking
from zcoll.errors import (
    ClosedError,
    CollectiveTimeoutError,
    ConfigurationError,
    ReplicaExitedError,
    name_ranks,
)
from zcoll.protocol.calling import read_group
from zcoll.protocol.events import WORLD
from zcoll.protocol.plans import pack_color, pack_ranks
from zcoll.wire import parse_fields
from zcoll.worker import refuse_inside_user_code

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from zcoll.engine.alone import Alone
    from zcoll.engine.engine import Engine
    from zcoll.futures import Future
    from zcoll.payload import Payload


MAX_BITS = 64  # of a color or a key: what hashes and ids have


class Communicator(Blocking, Asynchronous):
    """A group of replicas, as one of them sees it. Made by :func:`connect`.

    Collectives are called in the same order on every replica of the group. As a
    context manager it ends with :meth:`teardown`, or with :meth:`close` when the
    block raises. Threads may share it; the order of their calls is then the program's
    to keep, unless each has a group of its own.

    Attributes:
        replica_rank: This replica's rank, 0 to ``num_replicas - 1``.
        num_replicas: The size of the group.
        name: What errors call the group: ``"world"``, or how it was made.
    """

    def __init__(
        self,
        engine: Engine | Alone,
        call_timeout: float | None,
        *,
        group: int = WORLD,
        name: str = "",
        ranks: Sequence[int] | None = None,
        world: Communicator | None = None,
    ) -> None:
        if ranks is None:
            ranks = range(engine.identity.num_replicas)
        super().__init__(engine, call_timeout, group, name, ranks)
        self.name = name or "world"
        self._world = world  # lives as long as any group of it; None: this is it
        self._left = False
        self._ending: Future[None] | None = None
        self._ending_lock = threading.RLock()
        # One that is dropped without a word ends like a program without teardown.
        end: Callable[[], None] = functools.partial(engine.leave, wait=False)
        if group != WORLD:
            end = functools.partial(engine.close_group, group)
        self._finalizer = weakref.finalize(self, end)
        self._finalizer.atexit = False  # then it is ``exits``' turn

    def __repr__(self) -> str:
        of = "" if self._group == WORLD else f" {self.name!r}"
        return f"<Communicator{of} rank {self.replica_rank} of {self.num_replicas}>"

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child's copy of its parent's: it is of no use."""
        try:
            self._engine.check_process()
        except ClosedError:
            return True
        return False

    # --- groups -----------------------------------------------------------

    def split(
        self,
        color: int | str | None,
        key: int = 0,
        *,
        timeout: float | None = None,
        tag: str = "",
    ) -> Communicator | None:
        """Divide the group: a new group for each color. Everybody calls it.

        Groups share the connection, and each numbers its own calls: those of
        different groups need no common order, from different threads too. A group
        ends with :meth:`close`, or when the one that it was made of is torn down.

        Args:
            color: Replicas of the same color come into the same group; None: into
                none.
            key: The order of ranks within the new group; where keys are equal, the
                order of ranks in this one.
            timeout: As for :meth:`allreduce`.
            tag: As for :meth:`allreduce`.

        Returns:
            The new group as this replica sees it; None, if its color is None.

        Raises:
            ConfigurationError: The color is no number or text, or the key no number.
            ZcollError: As for all collectives.
        """
        if color is not None and not isinstance(color, str):
            color = _read_int("color", color, "int, str or None")
        key = _read_int("key", key, "an int")
        return self._new_group(operations.SPLIT, pack_color(color, key), timeout, tag)

    def dup(self, *, timeout: float | None = None, tag: str = "") -> Communicator:
        """Make a group of the same replicas, with a numbering of its own.

        Replicas that have left this group are not in the new one.

        Args:
            timeout: As for :meth:`allreduce`.
            tag: As for :meth:`allreduce`.

        Returns:
            The new group.

        Raises:
            ZcollError: As for all collectives.
        """
        made = self._new_group(operations.DUP, None, timeout, tag)
        assert made is not None
        return made

    def group(
        self, ranks: Sequence[int], *, timeout: float | None = None, tag: str = ""
    ) -> Communicator | None:
        """Make a group of some replicas. Everybody calls it, with the same ranks.

        Args:
            ranks: Their ranks in this group, in the order of the new one.
            timeout: As for :meth:`allreduce`.
            tag: As for :meth:`allreduce`.

        Returns:
            The new group; None for a replica that is not in it.

        Raises:
            ConfigurationError: There is no such rank, or one comes twice.
            CollectiveError: Replicas name different ranks, or one that has left.
            ZcollError: As for all collectives.
        """
        try:
            chosen = [operator.index(rank) for rank in ranks]
        except TypeError:
            raise ConfigurationError(f"ranks must be ranks, not {ranks!r}") from None
        if not chosen or len(set(chosen)) < len(chosen):
            raise ConfigurationError(f"ranks must be different ones, not {ranks!r}")
        wrong = [rank for rank in chosen if not 0 <= rank < self.num_replicas]
        if wrong:
            raise ConfigurationError(
                f"rank {wrong[0]} is out of range: ranks are 0 to "
                f"{self.num_replicas - 1}"
            )
        return self._new_group(operations.GROUP, pack_ranks(chosen), timeout, tag)

    def _new_group(
        self,
        operation: operations.Operation,
        given: bytes | None,
        timeout: float | None,
        tag: str,
    ) -> Communicator | None:
        made: Communicator | None = self._call(
            operation, given, timeout, tag, decode=self._enter
        )
        return made

    def _enter(self, payload: Payload) -> Communicator | None:
        """The group that rank 0 has made for this replica, if it is in one."""
        number, name, ranks = read_group(parse_fields(payload.parts[0]))
        if number is None:
            return None
        return Communicator(
            *(self._engine, self._call_timeout),
            group=number,
            name=name,
            ranks=ranks,
            world=self._world or self,
        )

    # --- uneven work ------------------------------------------------------

    def leave(self) -> None:
        """Make no more calls in this group; the others go on without this replica.

        What it has called before still counts. From then on its rank drops out of
        reductions, :data:`zcoll.ABSENT` stands for it in lists, and a call rooted at
        it is a ``CollectiveError`` on every replica. The lowest rank that is left
        gives the reduce function. Rank 0 may leave too: its process goes on serving,
        until :meth:`teardown` or its end. A second time it does nothing.

        Raises:
            ClosedError: This replica has left everything.
        """
        if self._done:
            return
        self._engine.leave_group(self._group)
        self._left = True
        self._done = f"replica {self._own_rank} has left {self.name!r} by leave()"

    @property
    def active_ranks(self) -> list[int]:
        """The ranks that still make calls, as of the last outcome here.

        None of them does once this replica has closed the group.
        """
        return self._engine.active(self._group)

    # --- the end ----------------------------------------------------------

    def teardown(self, *, timeout: float | None = None) -> None:
        """End the group together with all others; of the first group, rank 0 last.

        After an error of the group it only closes, and does not wait; so it does
        after :meth:`leave`, but rank 0 of the first group waits until nobody needs
        its process. After :meth:`close`, or a second time, it does nothing.

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
        if self._left and not self._over:
            self._serve(limit)
        if self._left or self._over:
            self._release()
            return
        with self._ending_lock:
            ending = self._ending
            if ending is None:
                ending = self._ending = self._start(operations.TEARDOWN, None, "")
        try:
            ending.result(limit)
            # Large results of earlier calls may still be on their way.
            concurrent.futures.wait(self._engine.pending(self._group), limit)
        except ReplicaExitedError as error:
            if error.reason:
                raise
        finally:
            if ending.done():
                self._release()
                self._ending = None  # a future refers to its group

    @property
    def _over(self) -> bool:
        """Whether no call can be made here any more, whoever tries."""
        if self._group == WORLD:
            return self._engine.over
        return not self._finalizer.alive or self._engine.group_over(self._group)

    def _serve(self, limit: float | None) -> None:
        """Let the others go on, where they need this process."""
        if self._group != WORLD:
            return
        needed_by = self._engine.serve(limit)
        if needed_by:
            raise CollectiveTimeoutError(
                f"rank 0's process serves {name_ranks(needed_by)}, who may still make "
                "calls; call teardown() again, or close()",
                missing=needed_by,
                timeout=limit or 0.0,
                op="teardown",
            )

    def close(self, reason: str = "") -> None:
        """Leave the group alone and at once; what was sent still counts.

        Later calls of the others raise ``ReplicaExitedError``. Of the first group
        that is the end of every other one, too; it waits until what was sent has
        arrived, and ends 2 seconds after the last progress.

        Args:
            reason: Why; part of the others' error.
        """
        self._release(str(reason))

    def _release(self, reason: str = "") -> None:
        if self._group == WORLD:
            self._engine.leave(reason)
        elif self._finalizer.detach() is not None:
            self._done = self._done or f"group {self.name!r} is closed"
            self._engine.close_group(self._group, reason)

    def abort(self, reason: str) -> None:
        """End everything on every replica at once: this one cannot go on.

        Every call that is not decided yet, and every later one, raises
        ``AbortedError`` with the reason, here too, whatever its group.

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


def _read_int(name: str, given: object, kinds: str) -> int:
    """A number that all replicas can compare, NumPy's too."""
    try:
        number = operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(given, bool):
        raise ConfigurationError(f"{name} must be {kinds}, not {given!r:.80}")
    if number.bit_length() > MAX_BITS:
        raise ConfigurationError(f"{name} must fit {MAX_BITS} bits, not {given!r:.80}")
    return number

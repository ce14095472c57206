"""How a call is made: checked, encoded, handed over to the engine, waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zcoll import codec
from zcoll.callsite import call_site
from zcoll.engine.functions import encode_function
from zcoll.engine.request import Request
from zcoll.errors import (
    ClosedError,
    CollectiveError,
    ConfigurationError,
    EncodeError,
)
from zcoll.launchers.settings import check_timeout
from zcoll.payload import Payload
from zcoll.protocol.events import HUB, Contribution
from zcoll.wire import MAX_TAG
from zcoll.worker import refuse_inside_user_code

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from zcoll.engine.alone import Alone
    from zcoll.engine.engine import Engine
    from zcoll.futures import Future
    from zcoll.operations import Operation

    ReduceFn = Callable[[Any, Any], Any]


class Calling:
    """One replica's calls in one group.

    Args:
        engine: What carries them out.
        call_timeout: The limit of calls that give none, in seconds, or None.
        group: The group's number; 0 is the world.
        name: What errors call it; "" is the world.
        ranks: Its members' ranks in the world, in the group's order.

    Attributes:
        replica_rank: This replica's rank, 0 to ``num_replicas - 1``.
        num_replicas: The size of the group.
    """

    def __init__(
        self,
        engine: Engine | Alone,
        call_timeout: float | None,
        group: int,
        name: str,
        ranks: Sequence[int],
    ) -> None:
        self.replica_rank = ranks.index(engine.identity.rank)
        self.num_replicas = len(ranks)
        self._engine = engine
        self._call_timeout = call_timeout
        self._group = group
        self._name = name
        self._own_rank = engine.identity.rank
        # Rank 0 expects the reduce function, where it cannot have it itself.
        self._equips = self.replica_rank == 0 and self._own_rank != HUB
        self._done = ""  # why this replica makes no more calls here

    def _call(
        self,
        operation: Operation,
        value: Any,
        timeout: float | None,
        tag: str,
        *,
        root: int = 0,
        reduce_fn: ReduceFn | None = None,
        decode: Callable[[Payload], Any] | None = None,
    ) -> Any:
        """Make a call, and wait for its result."""
        limit = self._limit(timeout)
        refuse_inside_user_code(operation.name)
        request = self._request(operation, value, tag, root, reduce_fn, decode)
        made = request.made
        if made.payload is not None and self._own_rank == HUB:
            made.payload.snapshot()
        outcome = self._engine.call(request)
        if outcome is not None:
            return request.read(outcome)
        try:
            return request.future.result(limit)
        except BaseException:
            if made.payload is not None and not request.future.done():
                # The call is still in flight, and the value is the caller's again.
                self._engine.keep(made.payload)
            raise

    def _start(
        self,
        operation: Operation,
        value: Any,
        tag: str,
        *,
        root: int = 0,
        reduce_fn: ReduceFn | None = None,
    ) -> Future[Any]:
        """Make a call, and leave the waiting to the future."""
        request = self._request(operation, value, tag, root, reduce_fn, None)
        if request.made.payload is not None:
            request.made.payload.snapshot()
        self._engine.submit(request, waits=False)
        return request.future

    def _request(
        self,
        operation: Operation,
        value: Any,
        tag: str,
        root: int,
        reduce_fn: ReduceFn | None,
        decode: Callable[[Payload], Any] | None,
    ) -> Request:
        """Check, and encode so that an error has the caller's stack."""
        self._check(operation, tag, root, reduce_fn)
        made = Contribution(self._group, operation, int(root), tag, call_site(2), None)
        if operation.contributes(self.replica_rank, root):
            try:
                made.payload = self._encode(operation, value)
            except CollectiveError as error:
                made.error = error
            except Exception as error:
                made.error = self._encode_error(made, error)
        if self._equips and reduce_fn is not None:
            made.function = encode_function(reduce_fn, self._own_rank)
        if decode is None:
            decode = self._decode_items if operation.many else self._decode
        return Request(made, reduce_fn, decode, self._engine, self._name)

    def _check(
        self, operation: Operation, tag: str, root: int, reduce_fn: ReduceFn | None
    ) -> None:
        self._engine.check()
        if self._done:
            raise ClosedError(self._done, group=self._name)
        if operation.folding is not None and not callable(reduce_fn):
            raise ConfigurationError(
                f"reduce_fn must be a function of two values, not {reduce_fn!r:.80}"
            )
        if operation.rooted:
            if isinstance(root, bool) or not hasattr(root, "__index__"):
                raise ConfigurationError(f"root must be a rank, not {root!r}")
            if not 0 <= root < self.num_replicas:
                raise ConfigurationError(
                    f"root {root} is out of range: ranks are 0 to "
                    f"{self.num_replicas - 1}"
                )
        if tag != "" and not _is_tag(tag):
            raise ConfigurationError(
                f"tag must be a text of at most {MAX_TAG} bytes, not {tag!r:.80}"
            )

    def _encode(self, operation: Operation, value: Any) -> Payload:
        if operation.makes is not None:
            return Payload([value], stable=True)
        if not operation.spread:
            return codec.encode(value)
        size = self.num_replicas
        try:
            items = list(value)
        except TypeError:
            items = []
        if len(items) != size:
            given = len(items) if hasattr(value, "__iter__") else repr(value)[:80]
            raise CollectiveError(
                f"{operation.name} needs a list of {size} values, one for each rank, "
                f"and it was given {given}",
                op=operation.name,
                rank=self._own_rank,
            )
        return codec.encode_items(items)

    def _encode_error(self, made: Contribution, cause: Exception) -> EncodeError:
        """What every replica gets to read of a value that cannot be pickled."""
        error = EncodeError(
            f"its value cannot be pickled: {codec.describe(cause)}",
            op=made.operation.name,
            rank=self._own_rank,
            site=made.site,
            remote_traceback=codec.trace(cause),
        )
        error.__cause__ = cause
        return error

    def _decode(self, payload: Payload) -> Any:
        return codec.decode(payload, self._engine.loads)

    def _decode_items(self, payload: Payload) -> list[Any]:
        return codec.decode_items(payload, self._engine.loads)

    def _limit(self, timeout: float | None) -> float | None:
        return self._call_timeout if timeout is None else check_timeout(timeout)


def _is_tag(tag: object) -> bool:
    """Whether every replica can compare it: as text that fits a message."""
    try:
        return isinstance(tag, str) and len(tag.encode()) <= MAX_TAG
    except UnicodeEncodeError:  # half a character
        return False

"""Rank 0's folds: they run the user's code, on threads of their own."""

from __future__ import annotations

import time
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol

from zcoll import codec
from zcoll.engine.functions import decode_function, name_function
from zcoll.errors import DecodeError, EncodeError, ReduceError
from zcoll.operations import Folding
from zcoll.payload import EMPTY, Payload
from zcoll.reducer import Fold, default_reduce_fn, fold
from zcoll.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from zcoll.codec import Loads
    from zcoll.errors import CollectiveError
    from zcoll.protocol import events

    ReduceFn = Callable[[Any, Any], Any]
    Key = tuple[int, int]  # a call: its group, and its number there


QUICK = 0.005  # seconds for a fold, to be done by who waits for it the next time
MAX_KNOWN = 1000  # reduce functions of which it is remembered


class Reduction(Protocol):
    """The fold of one call's operands, as they come."""

    def add(self, operand: Any) -> None:
        """Fold in the next operand."""

    def results(self) -> list[Payload]:
        """What the operands have come to, pickled."""


class _Whole:
    """One value of all operands."""

    def __init__(self, reduce_fn: ReduceFn) -> None:
        self._reduce_fn = reduce_fn
        self._fold = Fold(reduce_fn)
        self._value: Any = None

    def add(self, operand: Any) -> None:
        self._value = self._fold.add(operand)

    def results(self) -> list[Payload]:
        return [_encode_whole(self._value, self._reduce_fn)]


class _Prefix:
    """For each operand, one value of those up to it."""

    def __init__(self, reduce_fn: ReduceFn) -> None:
        self._fold = Fold(reduce_fn)
        self._results: list[Payload] = []

    def add(self, operand: Any) -> None:
        # At once, since the next step may change the value in place.
        self._results.append(_encode(self._fold.add(operand)))

    def results(self) -> list[Payload]:
        return self._results


class _Before(_Prefix):
    """For each operand, one value of those before it: nothing for the first."""

    def __init__(self, reduce_fn: ReduceFn) -> None:
        super().__init__(reduce_fn)
        self._results.append(EMPTY)
        self._last: list[Any] = []

    def add(self, operand: Any) -> None:
        if self._last:
            super().add(self._last.pop())
        self._last.append(operand)


class _Items:
    """For each rank, one value of everybody's items for it."""

    def __init__(self, reduce_fn: ReduceFn) -> None:
        self._reduce_fn = reduce_fn
        self._parts: list[_Whole] = []

    def add(self, operand: list[Any]) -> None:
        if not self._parts:
            self._parts = [_Whole(self._reduce_fn) for _ in operand]
        for part, item in zip(self._parts, operand, strict=True):
            part.add(item)

    def results(self) -> list[Payload]:
        return [payload for part in self._parts for payload in part.results()]


_KINDS: dict[Folding, Callable[[ReduceFn], Reduction]] = {
    Folding.WHOLE: _Whole,
    Folding.PREFIX: _Prefix,
    Folding.BEFORE: _Before,
    Folding.ITEMS: _Items,
}


class _Failed(Exception):  # noqa: N818 - carries an error to the end of a fold
    """The call fails with this error."""

    def __init__(self, error: CollectiveError) -> None:
        super().__init__()
        self.error = error


class Folder:
    """Folds the operands of calls; a slow reduce function keeps only its group waiting.

    Args:
        loads: What unpickles operands and functions, or None for pickle.
        names: Where the names of reduce functions at work are written down.
    """

    def __init__(self, loads: Loads | None, names: dict[Key, str]) -> None:
        self._loads = loads
        self._names = names
        self._quick: dict[object, bool] = {}  # by what functions consist of
        self._workers: dict[int, Worker] = {}  # by group
        self._reductions: dict[Key, Reduction] = {}  # a group's are its worker's own

    def submit(self, group: int, job: Callable[[], None]) -> None:
        """Run a job on the thread for the folds of a group."""
        worker = self._workers.get(group)
        if worker is None:
            worker = self._workers[group] = Worker("zcoll-fold")
        worker.submit(job)

    def is_quick(self, reduce_fn: ReduceFn | None) -> bool:
        """Whether a function is known to have been quick the last time."""
        return reduce_fn is not None and self._quick.get(_code(reduce_fn), False)

    def fold_at_once(
        self, folding: Folding, operands: Iterable[Payload], reduce_fn: ReduceFn
    ) -> list[Payload] | None:
        """Fold all operands of a call: this is the program's code.

        Returns:
            The results; None if something is wrong, of which :meth:`fold` says what.
        """
        began = time.perf_counter()
        try:
            values = (codec.decode(operand, self._loads) for operand in operands)
            if folding is Folding.WHOLE:
                results = [_encode_whole(fold(reduce_fn, values), reduce_fn)]
            else:
                reduction = _KINDS[folding](reduce_fn)
                for value in values:
                    reduction.add(value)
                results = reduction.results()
        except BaseException:  # that of a signal's handler is known to who has asked
            return None
        self._note(reduce_fn, time.perf_counter() - began)
        return results

    def is_brief(self, fold: events.Fold, reduce_fn: ReduceFn | None) -> bool:
        """Whether a fold may be done by who waits for it, without a hand-over.

        Nothing is lost when it is interrupted: it can be done again. But nobody hears
        of a time-out or a loss meanwhile, so the function must have been quick before.
        """
        if not fold.last or (fold.group, fold.call.seq) in self._reductions:
            return False
        # Who sends chunks has told their sizes; only rank 0 sends none.
        small = not fold.call.sizes and fold.operands[0][1].inline
        return small and self.is_quick(reduce_fn)

    def release(self, group: int) -> None:
        """A group has no more calls."""
        worker = self._workers.pop(group, None)
        if worker is not None:
            worker.submit(lambda: self._drop(group))
            worker.stop(wait=False)

    def _drop(self, group: int) -> None:
        """Nothing is kept of calls that ended in the middle of their fold."""
        for key in [key for key in self._reductions if key[0] == group]:
            del self._reductions[key]
            self._names.pop(key, None)

    def stop(self) -> None:
        """End all folds; those at work are left behind."""
        while self._workers:
            self._workers.popitem()[1].stop()

    def fold(
        self, fold: events.Fold, reduce_fn: ReduceFn | None, site: str
    ) -> tuple[list[Payload] | None, CollectiveError | None]:
        """Fold some operands of a call: this is the program's code.

        Args:
            fold: What is to be done.
            reduce_fn: The function; None: it came with the call.
            site: Where rank 0 made the call, or "".

        Returns:
            The results, if the fold is complete, and its error, if it has failed.
        """
        call, key = fold.call, (fold.group, fold.call.seq)
        began = time.perf_counter()
        try:
            results = self._fold(key, fold, reduce_fn)
            self._note(reduce_fn, time.perf_counter() - began)
            return results, None
        except _Failed as failed:
            error = failed.error
            error.op, error.seq, error.site = call.operation.name, call.seq, site
            self._reductions.pop(key, None)
            return None, error

    def _note(self, reduce_fn: ReduceFn | None, seconds: float) -> None:
        """Remember of a function whether it was quick the last time."""
        if reduce_fn is not None:
            if len(self._quick) >= MAX_KNOWN:
                self._quick.clear()
            self._quick[_code(reduce_fn)] = seconds < QUICK

    def _fold(
        self, key: Key, fold: events.Fold, reduce_fn: ReduceFn | None
    ) -> list[Payload] | None:
        reduction = self._reductions.pop(key, None)
        if reduction is None:
            reduction = self._begin(key, fold, reduce_fn)
        for rank, payload in fold.operands:
            operand = self._decode(fold, rank, payload)
            try:
                reduction.add(operand)
            except _Failed:
                raise
            except BaseException as error:
                text = f"the reduce function raised {codec.describe(error)}"
                raise _failed(ReduceError, text, 0, error) from None
        if fold.last:
            return reduction.results()
        self._reductions[key] = reduction
        return None

    def _begin(
        self, key: Key, fold: events.Fold, reduce_fn: ReduceFn | None
    ) -> Reduction:
        kind, first = fold.call.operation.folding, fold.operands[0][0]
        assert kind is not None
        if reduce_fn is None:
            assert fold.call.function is not None
            try:
                reduce_fn = decode_function(fold.call.function, self._loads)
            except BaseException as error:
                text = "its reduce function cannot be unpickled at rank 0: "
                text += codec.describe(error)
                raise _failed(DecodeError, text, first, error) from None
            self._names[key] = name_function(reduce_fn)
        return _KINDS[kind](reduce_fn)

    def _decode(self, fold: events.Fold, rank: int, payload: Payload) -> Any:
        try:
            if not fold.call.operation.spread:
                return codec.decode(payload, self._loads)
            return codec.decode_items(payload, self._loads)
        except BaseException as error:
            text = f"its value cannot be unpickled at rank 0: {codec.describe(error)}"
            raise _failed(DecodeError, text, rank, error) from None


def _code(reduce_fn: ReduceFn) -> object:
    """What is the same of a function that is made anew for each call."""
    code = reduce_fn.__code__ if isinstance(reduce_fn, FunctionType) else None
    return type(reduce_fn) if code is None else code


def _encode_whole(value: Any, reduce_fn: ReduceFn) -> Payload:
    """Pickle what all operands have come to."""
    # Adding arrays keeps nothing of the sum, so that need not be copied.
    keeps = reduce_fn is not default_reduce_fn or not codec.is_array(value)
    return _encode(value, copy=keeps)


def _encode(value: Any, *, copy: bool = True) -> Payload:
    """Pickle a result.

    Args:
        value: The result.
        copy: Whether the reduce function may have kept it, and change it later.
    """
    try:
        payload = codec.encode(value)
        if copy and not payload.stable:
            payload.snapshot()
        payload.stable = True
    except BaseException as error:
        text = f"the result cannot be pickled: {codec.describe(error)}"
        raise _failed(EncodeError, text, 0, error) from None
    return payload


def _failed(
    kind: type[CollectiveError], text: str, rank: int, error: BaseException
) -> _Failed:
    failure = kind(text, rank=rank, remote_traceback=codec.trace(error))
    failure.__cause__ = error
    return _Failed(failure)

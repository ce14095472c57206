"""The reduction: a left fold in rank order."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def default_reduce_fn(a: Any, b: Any) -> Any:
    """Add two values, in place where they can be: ``a += b; return a``.

    The function of the same name in AdaptDL. Sums numbers and arrays, joins
    strings and lists, adds up Counters; sets and dicts need a function of their
    own, such as ``operator.or_``.
    """
    a += b
    return a


def fold(reduce_fn: Callable[[Any, Any], Any], operands: Iterable[Any]) -> Any:
    """Fold operands that are all there, in rank order; see :class:`Fold`."""
    return functools.reduce(reduce_fn, operands)


class Fold:
    """``f(f(f(x0, x1), x2), x3)``, as the operands become available.

    The caller adds the operands in rank order, whatever the order of their
    arrival, so functions need not commute or associate, and the same operands
    give the same bits. Operands belong to the fold: it may change them.
    """

    def __init__(self, reduce_fn: Callable[[Any, Any], Any]) -> None:
        self._reduce_fn = reduce_fn
        self._operands = 0
        self._result: Any = None

    def add(self, operand: Any) -> Any:
        """Fold in the next operand, and give the reduction of those so far.

        What the reduce function raises comes out.
        """
        if self._operands:
            self._result = self._reduce_fn(self._result, operand)
        else:
            self._result = operand
        self._operands += 1
        return self._result

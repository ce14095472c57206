"""Reduce functions that Python lacks.

Any function of two values reduces: ``max``, ``operator.or_``, NumPy's ufuncs, a
lambda. Here is what takes more than that::

    loss = comm.allreduce(ops.weighted(loss, len(batch)), ops.mean).value
    names = comm.allreduce(names, ops.concat)
    slowest = comm.allreduce(seconds_by_stage, ops.merge_dicts(max))
"""

from __future__ import annotations

import math
import numbers
import operator
import sys
from typing import TYPE_CHECKING, Any, Generic, SupportsFloat, TypeVar, overload

from zcoll.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
V = TypeVar("V")
D = TypeVar("D", bound=dict[Any, Any])


class Weighted(Generic[V]):
    """A value and how much it counts: made by :func:`weighted`, or by :func:`mean`.

    Attributes:
        value: The value, or the mean of several.
        weight: Its weight, or the sum of theirs.
    """

    __slots__ = ("_value", "_weight")

    def __init__(self, value: V, weight: float) -> None:
        self._value = value
        self._weight = weight

    @property
    def value(self) -> V:
        """The value, or the mean of several."""
        return self._value

    @property
    def weight(self) -> float:
        """Its weight, or the sum of theirs."""
        return self._weight

    def __repr__(self) -> str:
        return f"Weighted(value={self.value!r}, weight={self.weight!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Weighted):
            return NotImplemented
        return (self.value, self.weight) == (other.value, other.weight)

    def __hash__(self) -> int:
        return hash((self.value, self.weight))

    def __reduce__(self) -> tuple[type[Weighted[V]], tuple[V, float]]:
        """Pickle by what it is made of, so that ``plain_loads`` takes it."""
        return type(self), (self.value, self.weight)


@overload
def weighted(value: float, weight: SupportsFloat = 1) -> Weighted[float]: ...
@overload
def weighted(value: V, weight: SupportsFloat = 1) -> Weighted[V]: ...
def weighted(value: Any, weight: Any = 1) -> Weighted[Any]:
    """Give a value its weight in a :func:`mean`.

    Args:
        value: A number or array, or anything that can be multiplied by a float and
            added up.
        weight: How much it counts: the size of a batch, for instance. A value of
            weight 0 does not count at all, so it may be NaN, or None.

    Raises:
        ConfigurationError: The weight is negative, infinite or no number.
    """
    is_number = isinstance(weight, numbers.Real)
    if not is_number or not 0 <= weight < math.inf:
        raise ConfigurationError(
            f"a weight must be a finite number, 0 or more, not {weight!r:.80}"
        )
    # NumPy's numbers would decide the precision of the mean, and may overflow.
    return Weighted(value, weight if isinstance(weight, int) else float(weight))


def mean(a: Weighted[V], b: Weighted[V]) -> Weighted[V]:
    """Average values by their weights.

    A mean needs to know how much is behind each operand, so they are
    :func:`weighted`, and so is the result: its ``.value`` is the mean, its
    ``.weight`` the sum of the weights. If all weights are 0, the value is the first.

    Integers and arrays of them become floats; floats keep their precision::

        >>> import functools
        >>> values = [weighted(0.5, 10), weighted(2.0, 30), weighted(None, 0)]
        >>> functools.reduce(mean, values)
        Weighted(value=1.625, weight=40)

    Args:
        a: The mean so far.
        b: The next value.

    Raises:
        TypeError: An operand is not weighted.
    """
    for operand in a, b:
        if not isinstance(operand, Weighted):
            kind = type(operand).__name__
            raise TypeError(f"mean takes ops.weighted(value, weight), not {kind}")
    if not b.weight:
        return a
    if not a.weight:
        return b
    # Shares, not sums of products: those would overflow small types of numbers.
    weight = a.weight + b.weight
    first: Any = a.value
    second: Any = b.value
    average = first * (a.weight / weight) + second * (b.weight / weight)
    return Weighted(average, weight)


def concat(a: T, b: T) -> T:
    """Join two sequences end to end.

    Lists, tuples, text, bytes, deques, and NumPy arrays along their first axis
    (which ``a += b`` would add). Not numbers, which have no ends::

        >>> concat([1, 2], [3])
        [1, 2, 3]

    Args:
        a: The first part; a list is extended in place.
        b: The part that follows.

    Raises:
        TypeError: They are no sequences, or not of one kind.
        ValueError: Arrays whose other axes differ.
    """
    numpy = sys.modules.get("numpy")  # without it there are no arrays either
    if numpy is not None and isinstance(a, numpy.ndarray):
        joined: T = numpy.concatenate([a, b])
    else:
        joined = operator.iconcat(a, b)  # type: ignore[no-untyped-call]
    return joined


def merge_dicts(fn: Callable[[Any, Any], Any]) -> Callable[[D, D], D]:
    """Make a function that merges two dicts, key by key.

    The result has the keys of both; keys come in the order in which they are met
    first::

        >>> merge = merge_dicts(max)
        >>> merge({"load": 3, "store": 5}, {"load": 4, "step": 1})
        {'load': 4, 'store': 5, 'step': 1}

    Dicts of dicts are merged by ``merge_dicts(merge_dicts(fn))``, and the means
    of many metrics by ``merge_dicts(mean)``.

    Args:
        fn: Reduces the values of a key that both dicts have.

    Returns:
        A reduce function. It changes the first dict, and returns it.
    """

    def merge(a: D, b: D) -> D:
        for key, value in b.items():
            a[key] = fn(a[key], value) if key in a else value
        return a

    return merge

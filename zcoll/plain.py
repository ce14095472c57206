"""What a restricted unpickler makes of the names in a pickle.

A pickle names functions and classes, and unpickling calls them: that is how it runs
code. :func:`resolve` knows only the names that plain data needs. For NumPy it does
not give NumPy's own functions, which believe what a pickle says of an array's
memory, but functions that build the same arrays by checked means.
"""

from __future__ import annotations

import functools
import re
from collections import Counter, OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Any

from zcoll.ops import Weighted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

# Booleans, integers, floats, complex numbers, bytes, text, dates and differences of
# dates; not objects ("O"), nor structures and raw memory ("V").
_SIMPLE = re.compile(r"[?bBhHiIlLqQefdFD]|[biufcSUMm]\d{1,10}")
_UNIT = re.compile(rb"[A-Za-z]{1,7}")
_ORDERS = {"<", ">", "|", "="}


class NotPlainError(ValueError):
    """A pickle wants something that is not plain data."""


class Dtype:
    """The type of an array's elements, as a pickle describes it.

    Args:
        name: NumPy's name of it.
    """

    __slots__ = ("_code", "_name")

    def __init__(self, name: object, *_: object) -> None:
        if not isinstance(name, str) or not _SIMPLE.fullmatch(name):
            raise NotPlainError(f"arrays of {name!r:.40} are not plain data")
        self._name = name
        self._code: str | None = None

    def build(self, state: object) -> Dtype:
        """Take in what a pickle says of the byte order, and of units of dates."""
        if self._code is not None or not isinstance(state, tuple) or len(state) < 8:
            raise NotPlainError("a description of array elements that is none")
        order, *structure = state[1:5]
        if order not in _ORDERS or structure != [None] * 3:
            raise NotPlainError("structured arrays are not plain data")
        unit = _unit(state[8]) if len(state) > 8 and self._name[0] in "mM" else ""
        self._code = f"{order}{self._name}{unit}"
        return self

    def real(self) -> Any:
        """NumPy's own type of these elements."""
        return _numpy().dtype(self._name if self._code is None else self._code)


def _unit(metadata: object) -> str:
    """The unit of dates, as NumPy writes it: ``[25s]``."""
    unit = metadata[1] if isinstance(metadata, tuple) and len(metadata) == 2 else None
    name, number = unit[:2] if isinstance(unit, tuple) and len(unit) > 1 else (None, 1)
    if not isinstance(name, bytes) or not _UNIT.fullmatch(name):
        raise NotPlainError("a unit of dates that is none")
    return "" if name == b"generic" else f"[{int(number)}{name.decode()}]"


class Array:
    """An array of which a pickle has yet to say what is in it.

    Attributes:
        place: Where the unpickler remembers it, or None.
    """

    __slots__ = ("place",)

    def __init__(self) -> None:
        self.place: int | None = None

    def build(self, state: object) -> Any:
        """Make the array."""
        if not isinstance(state, tuple) or len(state) != 5:
            raise NotPlainError("a description of an array that is none")
        _, shape, dtype, is_fortran, data = state
        if not isinstance(data, bytes):
            raise NotPlainError("arrays of objects are not plain data")
        return _array(bytearray(data), dtype, shape, "F" if is_fortran else "C")


_NDARRAY = object()  # stands for NumPy's class: nothing else is made of it


def _reconstruct(kind: object, *_: object) -> Array:
    if kind is not _NDARRAY:
        raise NotPlainError("subclasses of arrays are not plain data")
    return Array()


def _array(
    buffer: Any,
    dtype: object,
    shape: Sequence[int],
    order: str,
    axes: Sequence[int] | None = None,
) -> Any:
    """What ``numpy._core.numeric._frombuffer`` does, for simple elements."""
    numpy = _numpy()
    if not isinstance(dtype, Dtype):
        raise NotPlainError("an array without a type")
    flat = numpy.frombuffer(buffer, dtype.real()) if len(buffer) else None
    if flat is None:
        flat = numpy.empty(0, dtype.real())
    if order == "K" and axes is not None:
        return flat.reshape(shape, order="C").transpose(axes)
    return flat.reshape(shape, order=order)


def _scalar(dtype: object, data: object) -> Any:
    if not isinstance(dtype, Dtype) or not isinstance(data, bytes):
        raise NotPlainError("a number of no simple type")
    if not data:  # an empty text
        return _numpy().zeros((), dtype.real())[()]
    return _array(data, dtype, (1,), "C")[0]


def _numpy() -> ModuleType:
    import numpy  # noqa: PLC0415 - only for those who use it

    return numpy


def _classes() -> tuple[type, ...]:
    """The classes that are plain data, once some pickle names one."""
    from datetime import (  # noqa: PLC0415 - as numpy; so the next two
        date,
        datetime,
        time,
        timedelta,
        timezone,
    )
    from decimal import Decimal  # noqa: PLC0415
    from fractions import Fraction  # noqa: PLC0415

    return (
        *(bool, bytearray, bytes, complex, dict, float, frozenset, int, list, range),
        *(set, slice, str, tuple, Counter, OrderedDict, defaultdict, deque),
        *(date, datetime, time, timedelta, timezone, Decimal, Fraction, Weighted),
    )


@functools.cache
def _names() -> dict[tuple[str, str], Any]:
    names: dict[tuple[str, str], Any] = {
        (kind.__module__, kind.__qualname__): kind for kind in _classes()
    }
    names["numpy", "ndarray"] = _NDARRAY
    names["numpy", "dtype"] = Dtype
    for core in ("numpy.core", "numpy._core"):
        names[f"{core}.multiarray", "_reconstruct"] = _reconstruct
        names[f"{core}.multiarray", "scalar"] = _scalar
        names[f"{core}.numeric", "_frombuffer"] = _array
    return names


def resolve(module: str, name: str) -> Callable[..., Any]:
    """What a name in a pickle stands for.

    Raises:
        NotPlainError: It stands for nothing that plain data needs.
    """
    try:
        found: Callable[..., Any] = _names()[module, name]
    except KeyError:
        raise NotPlainError(
            f"{module}.{name} is not plain data, and this replica takes no other "
            "(loads=zcoll.plain_loads)"
        ) from None
    return found

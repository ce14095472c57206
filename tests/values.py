"""Values of many types, and what it means that one arrived as it was sent."""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import math
import operator
import pathlib
import types
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable

_masked: Any = np.ma  # its functions have types with some versions of NumPy only

MEBI = 1 << 20


class Colour(enum.Enum):
    """An enumeration."""

    RED = "red"
    BLUE = "blue"


class Point(NamedTuple):
    """A named tuple."""

    x: int
    y: float


@dataclasses.dataclass
class Record:
    """A dataclass that holds containers and an array."""

    name: str
    scores: dict[str, float]
    data: np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    """A dataclass without a dictionary."""

    rank: int
    tags: tuple[str, ...]


class TroubleError(Exception):
    """An exception with more than a text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code


def _local_class(rank: int) -> Any:
    class Local:
        def __init__(self) -> None:
            self.rank = rank

        def __eq__(self, other: object) -> bool:
            return self.rank == getattr(other, "rank", None)

        __hash__ = None  # type: ignore[assignment]

    return Local()


def _closure(rank: int) -> Callable[[], tuple[int, float]]:
    return lambda: (rank, math.pi)


def _shared(rank: int) -> list[list[int]]:
    inner = [rank]
    return [inner, inner]


def _recursive(rank: int) -> list[Any]:
    outer: list[Any] = [rank]
    outer.append(outer)
    return outer


PLAIN: dict[str, Callable[[int], Any]] = {
    "None": lambda rank: None,
    "bool": lambda rank: rank % 2 == 0,
    "int": lambda rank: rank - 2,
    "big int": lambda rank: (1 << 5000) + rank,
    "negative big int": lambda rank: -(3 ** (700 + rank)),
    "float": lambda rank: rank / 3,
    "not a number": lambda rank: math.nan,
    "infinity": lambda rank: -math.inf,
    "complex": lambda rank: complex(rank, -0.0),
    "str": lambda rank: f"replica {rank}",
    "empty str": lambda rank: "",
    "astral str": lambda rank: "zwölf \N{SNOWMAN} \U0001f600 \x00" * (rank + 1),
    "lone surrogate": lambda rank: "\ud800",
    "bytes": lambda rank: bytes(range(rank, rank + 9)),
    "empty bytes": lambda rank: b"",
    "3 MiB of bytes": lambda rank: bytes([rank]) * (3 * MEBI),
    "bytearray": lambda rank: bytearray(b"abc") * rank,
    "2 MiB bytearray": lambda rank: bytearray([rank]) * (2 * MEBI),
    "array.array": lambda rank: array.array("d", [rank, 0.5]),
    "nested": lambda rank: {"a": [1, (2, {"b": {rank}}), []], rank: None},
    "a tuple": lambda rank: (rank, (), (rank,)),
    "shared inner list": _shared,
    "recursive list": _recursive,
    "set": lambda rank: {rank, "x", (1, 2)},
    "empty set": lambda rank: set(),
    "frozenset": lambda rank: frozenset({rank, rank + 1}),
    "Counter": lambda rank: collections.Counter("abracadabra"[rank:]),
    "OrderedDict": lambda rank: collections.OrderedDict([("z", rank), ("a", 0)]),
    "defaultdict": lambda rank: collections.defaultdict(list, {rank: [rank]}),
    "deque": lambda rank: collections.deque([rank, 1], maxlen=4),
    "named tuple": lambda rank: Point(rank, 0.5),
    "enum": lambda rank: Colour.RED if rank % 2 else Colour.BLUE,
    "Frozen": lambda rank: Frozen(rank, ("a", "b")),
    "dataclass": lambda rank: Record("r", {"f1": rank / 7}, np.arange(rank + 1)),
    "object of a local class": _local_class,
    "lambda": lambda rank: lambda: rank,
    "closure": _closure,
    "partial": lambda rank: functools.partial(operator.add, rank, 1),
    "builtin": lambda rank: len,
    "class": lambda rank: collections.Counter,
    "exception": lambda rank: ValueError("bad", rank),
    "exception of its own": lambda rank: TroubleError(rank, "text"),
    "error of zcoll": lambda rank: zcoll.ReduceError("m", op="allreduce", rank=rank),
    "Decimal": lambda rank: decimal.Decimal(rank) / 3,
    "Fraction": lambda rank: fractions.Fraction(rank, 7),
    "datetime": lambda rank: datetime.datetime(
        2024, 2, 29 - rank, tzinfo=datetime.timezone.utc
    ),
    "UUID": lambda rank: uuid.UUID(int=rank),
    "path": lambda rank: pathlib.PurePosixPath("/a") / str(rank),
    "range": lambda rank: range(rank, 10, 2),
    "Ellipsis": lambda rank: ...,
}

DTYPES = (
    *("?", "i1", "u1", "<i2", ">i2", "i4", ">u4", "i8", "u8"),
    *("f2", "f4", ">f4", "f8", ">f8", "g", "c8", "c16"),
    *("S5", "U3", ">U3", "M8[s]", "m8[ms]", "V4", "O"),
    "i4, f8, S3",
)


def of_dtype(name: str, rank: int) -> np.ndarray[Any, Any]:
    dtype = np.dtype(name)
    if dtype.kind == "O":
        return np.array([rank, "text", None, [rank]], dtype=object)
    if dtype.kind in "VSU" or dtype.names:
        raw = bytes([65 + rank, 0, 0, 0]) * dtype.itemsize * 3
        return np.frombuffer(raw[: 3 * dtype.itemsize], dtype).copy()
    return (np.arange(6) + rank).astype(dtype).reshape(2, 3)


def _cube(rank: int) -> np.ndarray[Any, Any]:
    return np.arange(24.0).reshape(2, 3, 4) + rank


def _read_only(rank: int) -> np.ndarray[Any, Any]:
    made = np.full(5, rank)
    made.flags.writeable = False
    return made


ARRAYS: dict[str, Callable[[int], Any]] = {
    **{f"array of {name}": functools.partial(of_dtype, name) for name in DTYPES},
    "C order": _cube,
    "Fortran order": lambda rank: np.asfortranarray(_cube(rank)),
    "transposed": lambda rank: _cube(rank).transpose(2, 0, 1),
    "every other": lambda rank: _cube(rank)[:, ::2, 1:],
    "reversed": lambda rank: np.arange(10)[::-1] + rank,
    "broadcast view": lambda rank: np.broadcast_to(np.float64(rank), (3, 4)),
    "read-only": _read_only,
    "of foreign bytes": lambda rank: np.frombuffer(bytes([rank] * 16), np.int32),
    "0-d": lambda rank: np.array(rank + 0.5),
    "empty": lambda rank: np.empty(0, np.int16),
    "empty 2-d": lambda rank: np.empty((0, 3)),
    "empty 3-d": lambda rank: np.empty((3, 0, 2), order="F"),
    "NumPy scalar": lambda rank: np.float32(rank + 0.25),
    "masked": lambda rank: _masked.masked_array(
        [1, 2, rank], mask=[False, True, False]
    ),
    "3 MiB": lambda rank: np.full(3 * MEBI // 8, rank, np.float64),
    "1 MiB and 8 bytes": lambda rank: np.arange(MEBI // 8 + 1) + rank,
    "many in a dict": lambda rank: {
        name: np.full(size, rank, np.float32)
        for name, size in (("w", 400_000), ("b", 10), ("e", 0), ("v", 70_000))
    },
}

VALUES = {**PLAIN, **ARRAYS}


@functools.singledispatch
def same(sent: Any, got: Any) -> bool:
    """Tell whether a value arrived as it was sent: its type, and every bit."""
    if type(sent).__qualname__ != type(got).__qualname__:
        return False
    if dataclasses.is_dataclass(sent):
        names = [field.name for field in dataclasses.fields(sent)]
        return all(same(getattr(sent, name), getattr(got, name)) for name in names)
    return bool(sent == got)


@same.register(float)
@same.register(complex)
def _(sent: complex, got: Any) -> bool:
    return type(sent) is type(got) and repr(sent) == repr(got)


@same.register(types.FunctionType)
@same.register(functools.partial)
def _(sent: Callable[[], Any], got: Any) -> bool:
    return type(sent) is type(got) and same(sent(), got())


@same.register(BaseException)
def _(sent: BaseException, got: Any) -> bool:
    return type(sent) is type(got) and (sent.args, vars(sent)) == (got.args, vars(got))


@same.register(dict)
def _(sent: dict[Any, Any], got: Any) -> bool:
    return (
        type(sent) is type(got)
        and list(sent) == list(got)
        and all(map(same, sent.values(), got.values()))
    )


@same.register(list)
@same.register(tuple)
def _(sent: list[Any] | tuple[Any, ...], got: Any) -> bool:
    if type(sent) is not type(got) or len(sent) != len(got):
        return False
    if sent and sent[-1] is sent:  # the one that holds itself
        return got[-1] is got and same(sent[:-1], got[:-1])
    return all(same(one, other) for one, other in zip(sent, got, strict=True))


@same.register(np.ndarray)
def _(sent: np.ndarray[Any, Any], got: Any) -> bool:
    if (type(sent), sent.dtype, sent.shape) != (type(got), got.dtype, got.shape):
        return False
    if isinstance(sent, np.ma.MaskedArray):
        return bool((sent == got).all() and (sent.mask == got.mask).all())
    if sent.flags.f_contiguous != got.flags.f_contiguous and sent.flags.c_contiguous:
        return False
    if sent.dtype == object:
        return bool(same(sent.tolist(), got.tolist()))
    if sent.dtype == np.longdouble:  # some of its bytes mean nothing
        return bool((sent == got).all())
    return bool(sent.tobytes() == got.tobytes())

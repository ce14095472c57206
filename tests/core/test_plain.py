"""The restricted unpickler: what it takes, and what it never calls."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zcoll import plain
from zcoll.codec import OUT_OF_BAND, decode, encode, plain_loads

_masked: Any = np.ma  # its functions have types with some versions of NumPy only

PLAIN: list[Any] = [
    *(None, True, 1, -(10**50), 1.5, 1j, "text", b"bytes", bytearray(b"more")),
    *((1, "a"), [1, [2]], {"a": {1: 2}}, {1, 2}, frozenset([1]), range(3), slice(1, 2)),
    *(collections.Counter("aab"), collections.OrderedDict(a=1)),
    *(collections.deque([1], 3), collections.defaultdict(list, a=[1])),
    datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.timezone.utc),
    *(datetime.date(2026, 1, 2), datetime.time(1), datetime.timedelta(1)),
    *(decimal.Decimal("1.50"), fractions.Fraction(1, 3)),
]
BLOCK = np.arange(24.0).reshape(2, 3, 4)
ARRAYS: list[Any] = [
    *(BLOCK, BLOCK.T, BLOCK[:, ::2], BLOCK.transpose(1, 0, 2), BLOCK[:0]),
    *(np.zeros(()), np.zeros((3, 0)), np.ones(OUT_OF_BAND), np.array([True])),
    *(np.arange(3, dtype=">i4"), np.arange(3, dtype="<u2"), np.arange(9, dtype="b")),
    *(np.array([1], "f2"), np.array([1j], "c8"), np.array([1.5], np.longdouble)),
    *(np.array(["ab", "ü"]), np.array([b"x"]), np.array(["ab"] * 4)[::2]),
    *(np.array(["2020-01-01"], "M8[D]"), np.array(["2020"], "M8[25s]")),
    *(
        np.array([1], "m8[D]"),
        np.array([3], "m8[us]"),
        np.array([1, 2, 3], "m8[s]")[::2],
    ),
]
SCALARS: list[Any] = [
    *(np.float64(3), np.bool_(1), np.int8(1), np.complex64(1j)),
    *(np.str_("ab"), np.str_(""), np.bytes_(b"x")),
    *(np.datetime64("2020-01-01"), np.timedelta64(3, "s")),
]


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_data_comes_back(value: Any) -> None:
    result = decode(encode(value), plain_loads)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{a.shape}")
def test_arrays_come_back(array: Any) -> None:
    alone = decode(encode(array), plain_loads)
    first, second = decode(encode([array, array]), plain_loads)
    assert first is second
    for result in alone, first:
        assert type(result) is np.ndarray
        assert result.dtype == array.dtype
        assert result.shape == array.shape
        assert (result == array).all()
        assert result.flags.writeable


@pytest.mark.parametrize("scalar", SCALARS, ids=repr)
def test_numpy_scalars_come_back(scalar: Any) -> None:
    result = decode(encode({"k": scalar}), plain_loads)["k"]
    assert result == scalar
    assert type(result) is type(scalar)
    assert result.dtype == scalar.dtype


class Own:
    """A class of a user."""


class Reduced:
    """Whatever a pickle may call."""

    def __init__(self, *call: Any) -> None:
        self._call = call

    def __reduce__(self) -> tuple[Any, ...]:
        return self._call


structured = np.array([(1, 2)], "i4,i4")
REFUSED: list[Any] = [
    *(Own(), Own, len, print, os.system, decode, np.sum, lambda: 1),
    *(np.array([object()]), structured, structured[0], _masked.array([1])),
    *(np.void(b"abc"), np.dtype("f8"), np.ndarray, object()),
    Reduced(getattr, (1, "real")),
    Reduced(collections.Counter, (), {"update": 1}),
    Reduced(collections.OrderedDict, (), (None, {"a": 1})),
]


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: type(value).__name__)
def test_everything_else_is_refused(value: Any) -> None:
    payload = encode(value)
    if value is np.ndarray or isinstance(value, np.dtype):
        # They alone are descriptions that stand for nothing.
        result = decode(payload, plain_loads)
        assert type(result) in {object, plain.Dtype}
        return
    with pytest.raises(plain.NotPlainError):
        decode(payload, plain_loads)


@pytest.mark.parametrize("depth", range(4))
def test_nothing_is_called_on_the_way(depth: int, tmp_path: Path) -> None:
    mark = tmp_path / "called"
    value: Any = Reduced(os.mkdir, (str(mark),))
    for _ in range(depth):
        value = [np.ones(3), {"k": (value,)}]
    payload = encode(value)
    with pytest.raises(plain.NotPlainError, match="mkdir is not plain data"):
        decode(payload, plain_loads)
    assert not mark.exists()
    decode(payload)  # the control
    assert mark.exists()


def build(*parts: bytes) -> bytes:
    return b"\x80\x05" + b"".join(parts) + b"."


def name(module: str, attribute: str) -> bytes:
    words = [module.encode(), attribute.encode()]
    return b"".join(b"\x8c" + bytes([len(word)]) + word for word in words) + b"\x93"


DTYPE = name("numpy", "dtype") + b"\x8c\x02S1\x89\x88\x87R"
BAD_STREAMS = {
    # An array whose elements become larger than its memory, after it was made.
    "dtype changed": build(
        DTYPE + b"\x94" + pickle.dumps((3, "|", None, None, None, 1, 1, 0), 5)[11:-1],
        b"bh\x00" + pickle.dumps((3, "|", None, None, None, 9, 1, 0), 5)[11:-1] + b"b",
    ),
    "class attribute": build(
        name("collections", "Counter") + b"N}\x8c\x06updateK\x01s\x86b"
    ),
    "old opcodes": b"cos\nsystem\n(S'true'\ntR.",
    "instance": b"(S'true'\nios\nsystem\n.",
    "new object": build(name("collections", "Counter") + b")\x81"),
    "extension": build(b"\x82\x01"),
    "persistent": build(b"Pfoo\n"),
    "number is no class": build(b"K\x01)R"),
    "next buffer": build(b"\x97"),
    "huge bytes": build(b"\x8e" + struct.pack("<Q", 2**62)),
    "empty": b"",
    "cut": pickle.dumps([np.ones(3)], 5)[:-20],
}


@pytest.mark.parametrize("stream", BAD_STREAMS.values(), ids=BAD_STREAMS)
def test_streams_that_are_made_up(stream: bytes) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - many kinds
        plain_loads(stream)
    assert not isinstance(caught.value, SystemError)


@given(st.binary(max_size=200))
def test_anything_is_a_value_or_an_error(stream: bytes) -> None:
    found: Exception | None = None
    try:
        plain_loads(b"\x80\x05" + stream)
    except Exception as error:
        found = error
    assert not isinstance(found, SystemError)


def test_a_function_like_pickle_loads_may_be_given() -> None:
    seen: list[int] = []

    def loads(data: Any, *, buffers: Any) -> Any:
        held = list(buffers)
        seen.append(len(held))
        return pickle.loads(data, buffers=held)

    assert decode(encode([1]), loads) == [1]
    assert (decode(encode(np.ones(OUT_OF_BAND)), loads) == 1).all()
    assert seen == [0, 1]

import pickle
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zcoll import codec
from zcoll.payload import Payload

_masked: Any = np.ma  # its functions have types with some versions of NumPy only

LARGE = codec.OUT_OF_BAND


@dataclass
class Point:
    x: int


class Stubborn:
    def __reduce__(self) -> Any:
        raise RuntimeError("I stay here")


class Trap:
    def __reduce__(self) -> Any:
        return explode, ()


def explode() -> None:
    raise ValueError("boom")


def turn(value: Any) -> Any:
    return codec.decode(codec.encode(value))


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json)
def test_values_come_back(value: Any) -> None:
    assert turn(value) == value


@pytest.mark.parametrize(
    "value", [Point(3), {1, 2}, 10**100, (1, "x"), ..., Point, range(3), 1j], ids=repr
)
def test_picklable_objects_come_back(value: Any) -> None:
    assert turn(value) == value


def test_a_class_that_can_be_imported_stays_the_same_class() -> None:
    assert type(turn(Point(1))) is Point


def test_what_pickle_refuses_goes_by_value() -> None:
    class Local:
        y = 4

    assert turn(lambda x: x + 1)(2) == 3
    assert turn(Local()).y == 4
    assert turn({"f": lambda: 5})["f"]() == 5


@pytest.mark.parametrize(
    ("value", "error"),
    [(Stubborn(), RuntimeError), (threading.Lock(), TypeError)],
    ids=["reduce raises", "lock"],
)
def test_what_nobody_can_pickle_raises(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        codec.encode(value)


def test_what_raises_when_it_is_unpickled_raises() -> None:
    with pytest.raises(ValueError, match="boom"):
        turn(Trap())


@pytest.mark.parametrize(
    "payload",
    [
        Payload([b"no pickle"]),
        Payload([b""]),
        Payload([pickle.dumps([1])[:-3]]),
    ],
)
def test_bytes_that_are_no_pickle_raise(payload: Payload) -> None:
    with pytest.raises((pickle.UnpicklingError, EOFError)):
        codec.decode(payload)


@pytest.mark.parametrize(
    ("count", "parts"), [(LARGE // 8 - 1, 1), (LARGE // 8, 2), (LARGE, 2), (0, 1)]
)
def test_large_arrays_stay_out_of_the_stream(count: int, parts: int) -> None:
    array = np.arange(count, dtype=np.float64)
    payload = codec.encode(array)
    assert len(payload.parts) == parts
    assert payload.stable is (parts == 1)
    np.testing.assert_array_equal(codec.decode(payload), array)


def test_there_are_never_too_many_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_BUFFERS", 2)
    arrays = [np.full(LARGE, n, dtype=np.uint8) for n in range(5)]
    payload = codec.encode(arrays)
    assert len(payload.parts) == 3
    for sent, arrived in zip(arrays, codec.decode(payload), strict=True):
        np.testing.assert_array_equal(sent, arrived)


def test_the_payload_of_a_large_array_is_its_own_memory_until_a_snapshot() -> None:
    array = np.zeros(LARGE, dtype=np.uint8)
    payload = codec.encode(array)
    array[0] = 1
    payload.snapshot()
    array[0] = 2
    assert codec.decode(payload)[0] == 1


def test_a_received_buffer_becomes_the_result_and_a_shared_one_is_copied() -> None:
    sent = codec.encode(np.zeros(LARGE, dtype=np.uint8))
    owned = Payload([sent.parts[0], bytearray(sent.parts[1])])
    result = codec.decode(owned)
    result[0] = 9
    assert memoryview(owned.parts[1])[0] == 9
    first, second = codec.decode(owned.shared()), codec.decode(owned.shared())
    first[0] = 7
    assert second[0] == 9


def frozen(array: Any) -> Any:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.arange(5),
        lambda: np.arange(LARGE),
        lambda: np.asfortranarray(np.ones((300, 300))),
        lambda: np.ones((400, 400))[::2, ::3],
        lambda: np.array(3.5),
        lambda: np.zeros((0, 3)),
        lambda: np.array(["a", None], dtype=object),
        lambda: np.array([("x", 1)], dtype=[("name", "U3"), ("n", "i4")]),
        lambda: np.arange(LARGE, dtype=">i4"),
        lambda: frozen(np.arange(5)),
        lambda: frozen(np.arange(LARGE)),
        lambda: frozen(np.asfortranarray(np.ones((300, 300)))),
        lambda: np.broadcast_to(np.arange(3), (4, 3)),
        lambda: np.frombuffer(bytes(LARGE), dtype=np.uint8),
        lambda: frozen(_masked.masked_array(np.arange(LARGE), mask=False).data),
    ],
)
@pytest.mark.parametrize("by_value", [False, True], ids=["pickle", "cloudpickle"])
def test_arrays_arrive_equal_and_writable(
    make: Callable[[], Any], by_value: bool
) -> None:
    array = make()
    value = [array, array, (lambda: 0) if by_value else None]
    first, second, _ = turn(value)
    np.testing.assert_array_equal(first, array)
    assert first.dtype == array.dtype
    assert first.flags.writeable
    assert first is second
    if array.flags.f_contiguous:
        assert first.flags.f_contiguous
    first[...] = first


def test_readonly_memory_that_is_no_array_comes_back() -> None:
    data = bytes(LARGE)
    assert bytes(turn(pickle.PickleBuffer(data))) == data


def test_errors_are_described_in_one_line_and_traced_in_many() -> None:
    with pytest.raises(ValueError, match="boom") as caught:
        explode()
    assert codec.describe(caught.value) == "ValueError: boom"
    assert re.search(r"line \d+, in explode", codec.trace(caught.value))
    assert codec.trace(caught.value).endswith("ValueError: boom")

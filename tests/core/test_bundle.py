import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zcoll import bundle
from zcoll.errors import ProtocolError
from zcoll.payload import Payload

SMALL, NONE = bundle.SMALL, 0xFFFFFFFF

parts = st.one_of(
    st.binary(max_size=30),
    st.sampled_from([0, SMALL - 1, SMALL, SMALL + 1]).map(bytes),
)
payloads = (
    st.builds(Payload, st.lists(parts, max_size=4), stable=st.booleans()) | st.none()
)


def _plain(item: Payload | None) -> list[bytes] | None:
    return None if item is None else [bytes(part) for part in item.parts]


@given(st.lists(payloads, max_size=6))
def test_what_is_joined_comes_apart_again(items: list[Payload | None]) -> None:
    again = bundle.split(bundle.join(items))
    assert [_plain(item) for item in again] == [_plain(item) for item in items]


@given(st.lists(payloads, max_size=4), st.lists(payloads, max_size=4))
def test_bundles_of_bundles(
    one: list[Payload | None], other: list[Payload | None]
) -> None:
    joined = bundle.join([bundle.join(one), bundle.join(other)])
    for items, part in zip((one, other), bundle.split(joined), strict=True):
        assert part is not None
        again = bundle.split(part)
        assert [_plain(item) for item in again] == [_plain(item) for item in items]


def test_large_parts_are_not_copied() -> None:
    large = bytearray(SMALL)
    joined = bundle.join([Payload([b"s", large]), None, Payload([b"t"])])
    assert joined.parts[1] is large
    (first, gap, last) = bundle.split(joined)
    assert first is not None
    assert first.parts[1] is large
    assert gap is None
    assert _plain(last) == [b"t"]


@pytest.mark.parametrize("stable", [True, False])
def test_a_bundle_is_as_stable_as_what_is_in_it(stable: bool) -> None:
    items = [Payload([b"a"], stable=True), None, Payload([b"b"], stable=stable)]
    joined = bundle.join(items)
    assert joined.stable is stable
    assert [item.stable for item in bundle.split(joined) if item] == [stable, stable]


def _index(*numbers: int) -> bytes:
    """An index: the first number and those of parts in 4 bytes, sizes in 8."""
    count, *rest = numbers
    text = struct.pack("!I", count)
    while rest:
        parts, *rest = rest
        text += struct.pack("!I", parts)
        if parts != NONE:
            text += b"".join(struct.pack("!Q", size) for size in rest[:parts])
            rest = rest[parts:]
    return text


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [b""],
        [b"\0\0\0"],
        [_index(1)],
        [_index(2, NONE)],
        [_index(1, 1)],
        [_index(1, 2, 1)],
        [_index(1, 1, 5) + b"four"],
        [_index(1, 1, 4) + b"and more"],
        [_index(0) + b"x"],
        [_index(0), bytes(SMALL)],
        [_index(1, 1, SMALL)],
        [_index(1, 1, SMALL), bytes(SMALL + 1)],
        [_index(1, 1, SMALL), bytes(SMALL), bytes(SMALL)],
        [_index(1, 1, 2**63)],
        [_index(1, 0xFFFFFFFE)],
        [_index(0xFFFFFFFF, 0, 0)],
    ],
)
def test_no_bundle_is_a_protocol_error(parts: list[bytes]) -> None:
    with pytest.raises(ProtocolError, match="a bundle"):
        bundle.split(Payload(list(parts)))


@given(st.lists(st.binary(max_size=60), max_size=3))
def test_any_bytes_are_a_bundle_or_a_protocol_error(parts: list[bytes]) -> None:
    try:
        items = bundle.split(Payload(list(parts)))
    except ProtocolError:
        return
    assert _plain(bundle.join(items)) == parts


@given(st.data())
def test_a_bundle_with_a_changed_byte(data: st.DataObject) -> None:
    items = data.draw(st.lists(payloads, min_size=1, max_size=4))
    joined = bundle.join(items)
    head = bytearray(joined.parts[0])
    place = data.draw(st.integers(0, len(head) - 1))
    head[place] ^= data.draw(st.integers(1, 255))
    joined.parts[0] = bytes(head)
    try:
        again = bundle.split(joined)
    except ProtocolError:
        return
    assert _plain(bundle.join(again)) == _plain(joined)

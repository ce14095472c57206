"""Several payloads in one, so that rank 0 can put them together and take them apart.

The first part of a bundle is an index, followed by every part that is small; large
parts stand beside it, as they are::

    number of items | per item: number of parts | per part: its size | small parts

Nothing is unpickled here, and nothing large is copied.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from zcoll.errors import ProtocolError
from zcoll.payload import Payload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zcoll.payload import Buffer

SMALL = 16 * 1024  # bytes; a part of fewer goes into the first one
_NONE = 0xFFFFFFFF  # the number of parts of an item that is not there


def join(items: Sequence[Payload | None]) -> Payload:
    """Make one payload of several, or of gaps (None) between them."""
    index = [struct.pack("!I", len(items))]
    small: list[Buffer] = []
    large: list[Buffer] = []
    for item in items:
        if item is None:
            index.append(struct.pack("!I", _NONE))
            continue
        sizes = item.sizes
        index.append(struct.pack(f"!I{len(sizes)}Q", len(sizes), *sizes))
        for part, size in zip(item.parts, sizes, strict=True):
            (small if size < SMALL else large).append(part)
    there = [item for item in items if item is not None]
    return Payload(
        [b"".join((*index, *small)), *large],
        stable=all(item.stable for item in there),
        owned=all(item.owned for item in there),
    )


def split(bundle: Payload) -> list[Payload | None]:
    """Take a payload of :func:`join` apart again.

    Raises:
        ProtocolError: It is none.
    """
    try:
        return _split(bundle)
    except (struct.error, IndexError):
        raise ProtocolError("a bundle whose index does not fit it") from None


def _split(bundle: Payload) -> list[Payload | None]:
    head = memoryview(bundle.parts[0])
    shapes, place = _read_index(head)
    large = iter(bundle.parts[1:])
    items: list[Payload | None] = []
    for sizes in shapes:
        if sizes is None:
            items.append(None)
            continue
        parts: list[Buffer] = []
        for size in sizes:
            if size >= SMALL:
                parts.append(next(large, b""))
            else:
                parts.append(head[place : place + size])
                place += size
            if memoryview(parts[-1]).nbytes != size:
                raise ProtocolError("a bundle with a part of another size")
        items.append(Payload(parts, bundle.stable, bundle.owned))
    if place != len(head) or next(large, None) is not None:
        raise ProtocolError("a bundle with more than its index says")
    return items


def _read_index(head: memoryview) -> tuple[list[list[int] | None], int]:
    """The sizes of each item's parts, and where the index ends."""
    (count,) = struct.unpack_from("!I", head)
    place = 4
    shapes: list[list[int] | None] = []
    for _ in range(count):
        (parts,) = struct.unpack_from("!I", head, place)
        place += 4
        if parts == _NONE:
            shapes.append(None)
            continue
        if 8 * parts > len(head) - place:  # before so much is asked for
            raise ProtocolError("a bundle that is shorter than its index")
        shapes.append(list(struct.unpack_from(f"!{parts}Q", head, place)))
        place += 8 * parts
    return shapes, place

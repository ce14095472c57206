"""Memory for large values that arrive: the receiver's own, and quick to get.

A page that is touched for the first time costs some ten times what a copy into it
does, as the system has to find and clear it; and it takes large pieces back as soon as
they are free. So pieces of up to ``LARGE`` bytes are used again, once nothing refers
to them; and larger ones are made of huge pages, where the system has these.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL = 128 * 1024  # bytes; below, the memory of Python itself is as quick
LARGE = 4 * 1024 * 1024  # bytes; above, huge pages are, and leave little unused
KEPT = 16 * 1024 * 1024  # bytes that wait to be used again, at most, of each size
IDLE = 5.0  # seconds without use after which none do
_LINUX = sys.platform == "linux"  # elsewhere memory cannot grow where it is


class Pool:
    """Blocks of memory that are free, while there are engines that may need them.

    Each is lent as the memory of a loan, an object that everything refers to which is
    made of it. When that is gone, the block is free again, whichever thread notices.
    """

    def __init__(self) -> None:
        self._free: dict[int, deque[mmap.mmap]] = {}  # by size
        self._loans: dict[int, Any] = {}  # their classes, by size
        self._users: set[object] = set()
        self._used = False  # since the last tick
        self._used_at = 0.0
        size = LARGE
        while size > SMALL:
            self._free[size] = deque(maxlen=KEPT // size)
            size //= 2

    def open(self, user: object) -> None:
        """Somebody may need memory again and again, and tells the time."""
        self._users.add(user)

    def close(self, user: object) -> None:
        """Somebody does not any more; without anybody, nothing is kept."""
        self._users.discard(user)
        if not self._users:
            self._clear()

    def take(self, size: int) -> mmap.mmap:
        """Take a block for so many bytes, or for the first ones of more."""
        self._used = True
        if size > LARGE:
            block = _make(min(size, 2 * LARGE))
            _ask_for_huge_pages(block)
            return block
        size = 1 << (size - 1).bit_length()
        try:
            return self._free[size].pop()
        except IndexError:
            return _make(size)

    def lend(self, block: mmap.mmap) -> memoryview:
        """The memory of a block, which comes back by itself unless it is larger."""
        size = len(block)
        if size > LARGE:
            return memoryview(block)
        if size not in self._loans:
            self._loans[size] = _make_kind(size, self._give_back)
        loan = self._loans[size].from_buffer(block)
        loan.block = block
        return memoryview(loan).cast("B")

    def _give_back(self, loan: Any) -> None:
        if self._users:
            self._free[len(loan.block)].append(loan.block)

    def tick(self, now: float) -> None:
        """Time has passed: give back what has not been needed for long."""
        if self._used:
            self._used, self._used_at = False, now
        elif now - self._used_at >= IDLE:
            self._clear()

    def _clear(self) -> None:
        for free in self._free.values():
            free.clear()

    @property
    def free(self) -> int:
        """Bytes that wait to be used again."""
        return sum(size * len(free) for size, free in self._free.items())


class Growing:
    """A piece of known size; it has memory as far as it has come.

    Args:
        size: Its size in bytes. It may be a lie.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._come = 0
        self._small = bytearray()
        self._block: mmap.mmap | None = None

    def __len__(self) -> int:
        return self._come

    def add(self, data: bytes | bytearray | memoryview) -> None:
        """More of it has come, and no more than its size."""
        end = self._come + len(data)
        if self._size <= SMALL or not _LINUX:
            self._small += data
        else:
            self._make_room(end)[self._come : end] = data
        self._come = end

    def _make_room(self, end: int) -> mmap.mmap:
        block = self._block
        if block is None:
            block = self._block = pool.take(self._size)
        if end > len(block):
            block.resize(min(max(end, 2 * len(block)), self._size))
            _ask_for_huge_pages(block)
        return block

    def finish(self) -> bytearray | memoryview:
        """Its memory, which is the caller's own; nothing more may come."""
        if self._block is None:
            return self._small
        return pool.lend(self._block)[: self._come]


def copy_of(data: bytes | bytearray | memoryview) -> bytearray | memoryview:
    """Copy data into memory that is the caller's own."""
    copy = Growing(len(data))
    copy.add(data)
    return copy.finish()


def _make(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _ask_for_huge_pages(block: mmap.mmap) -> None:
    with contextlib.suppress(OSError):  # a kernel without
        block.madvise(mmap.MADV_HUGEPAGE)


def _make_kind(size: int, give_back: Callable[[Any], None]) -> Any:
    """The class of the loans of blocks of one size."""
    import ctypes  # noqa: PLC0415 - it takes 3 ms, and small values need none of it

    def end(loan: Any) -> None:
        give_back(loan)

    fields = {"_type_": ctypes.c_ubyte, "_length_": size, "__del__": end}
    return type("Loan", (ctypes.Array,), fields)


pool = Pool()  # of this process

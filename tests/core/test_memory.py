from __future__ import annotations

import gc
import os
import threading

import numpy as np
import pytest

from zcoll import memory
from zcoll.memory import IDLE, KEPT, LARGE, SMALL, Growing, Pool, copy_of

MIB = 1024 * 1024
SIZES = [0, 1, SMALL, SMALL + 1, MIB, LARGE, LARGE + 1, 2 * LARGE + 1, 5 * LARGE - 7]

linux = pytest.mark.skipif(not memory._LINUX, reason="memory is Python's own there")


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch) -> Pool:
    pool = Pool()
    pool.open("the test")
    monkeypatch.setattr(memory, "pool", pool)
    return pool


def place_of(data: memoryview | bytearray) -> int:
    """Where data stands in memory."""
    return int(np.frombuffer(data, np.uint8).ctypes.data)


@pytest.mark.parametrize("size", SIZES)
def test_a_piece_grows_as_it_comes(size: int) -> None:
    data, chunk = os.urandom(size), MIB - 1
    piece = Growing(size)
    for start in range(0, size, chunk):
        piece.add(data[start : start + chunk])
        assert len(piece) == min(start + chunk, size)
    memory = piece.finish()
    assert bytes(memory) == data
    assert not memoryview(memory).readonly


@pytest.mark.parametrize("size", SIZES)
def test_a_copy_is_the_callers_own(size: int) -> None:
    data = os.urandom(size)
    copy, other = copy_of(data), copy_of(data)
    assert bytes(copy) == bytes(other) == data
    if size:
        copy[0] ^= 1
        assert bytes(copy) != data
        assert bytes(other) == data


def test_a_size_that_is_a_lie_takes_no_memory() -> None:
    piece = Growing(2**63)
    piece.add(b"x")
    assert len(piece) == 1


@linux
@pytest.mark.parametrize("size", [SMALL + 1, MIB, LARGE])
def test_memory_is_used_again_once_nothing_refers_to_it(pool: Pool, size: int) -> None:
    first = copy_of(bytes(size))
    place = place_of(first)
    array = np.frombuffer(first, np.uint8)
    last = array[5:10]
    del first, array
    assert place_of(copy_of(bytes(size))) != place
    del last
    again = [copy_of(b"x" * size) for _ in range(3)]
    assert place in [place_of(each) for each in again]
    assert all(bytes(each) == b"x" * size for each in again)


@linux
def test_what_is_never_finished_is_nobodys(pool: Pool) -> None:
    piece = Growing(MIB)
    piece.add(b"x")
    del piece
    assert not pool.free


@linux
def test_large_memory_goes_back_to_the_system(pool: Pool) -> None:
    copy_of(bytes(LARGE + 1))
    assert not pool.free


@linux
def test_not_all_is_kept(pool: Pool) -> None:
    copies = [copy_of(bytes(MIB)) for _ in range(KEPT // MIB + 5)]
    assert not pool.free
    del copies
    assert pool.free == KEPT


@linux
def test_memory_is_given_back_when_it_has_been_idle(pool: Pool) -> None:
    copy_of(bytes(MIB))
    pool.tick(100.0)
    pool.tick(100.0 + IDLE / 2)
    assert pool.free == MIB
    pool.tick(100.0 + IDLE)
    assert not pool.free


@linux
def test_nothing_is_kept_for_nobody(pool: Pool) -> None:
    later = copy_of(bytes(MIB))
    copy_of(bytes(MIB))
    pool.open("another")
    pool.close("the test")
    assert pool.free == MIB
    pool.close("another")
    assert not pool.free
    del later
    assert not pool.free


@linux
def test_any_thread_may_be_the_last_to_refer_to_it(pool: Pool) -> None:
    held = [[copy_of(bytes(MIB)) for _ in range(5)] for _ in range(3)]
    threads = [threading.Thread(target=each.clear) for each in held]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pool.free == 15 * MIB


@linux
def test_what_refers_to_itself_is_collected(pool: Pool) -> None:
    circle: list[object] = [copy_of(bytes(MIB))]
    circle.append(circle)
    del circle
    gc.collect()
    assert pool.free == MIB


@linux
def test_a_forked_child_has_its_own(pool: Pool) -> None:
    kept = copy_of(b"p" * MIB)
    child = os.fork()
    if child == 0:
        kept[:] = b"c" * MIB
        del kept
        copy_of(b"c" * MIB)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert bytes(kept) == b"p" * MIB
    assert not pool.free

from __future__ import annotations

from collections import deque
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from zcoll.errors import ProtocolError
from zcoll.transport.lane.ring import (
    CONSUMED,
    PUBLISHED,
    WORDS,
    FullError,
    Reader,
    Writer,
)

LEAST = 4096
SPACE = 4 * LEAST
SMALL = 64  # for the state machine, so that everything often meets


class Memory:
    """A ring's memory: what is not reserved must not be touched."""

    def __init__(
        self, limit: int = SPACE, space: int = SPACE, least: int = LEAST
    ) -> None:
        self.words = [memoryview(bytearray(8 * WORDS)).cast("Q") for _ in range(2)]
        self.space = memoryview(bytearray(space))
        self.limit = limit  # bytes that can be reserved
        self.reserved = least
        one, other = self.words
        self.writer = Writer(one, other, self.space, least, self.reserve, self.release)
        self.reader = Reader(other, one, self.space, memoryview(b""))

    def reserve(self, start: int, size: int) -> bool:
        assert start == self.reserved
        if start + size > self.limit:
            return False
        self.reserved = start + size
        return True

    def release(self, start: int, size: int) -> None:
        assert start + size == self.reserved
        self.reserved = start
        self.space[start : start + size] = b"\xee" * size

    def take(self) -> list[bytes] | None:
        frames = self.reader.read()
        if frames is None:
            return None
        taken = [bytes(frame) for frame in frames]
        self.reader.done()
        return taken


def test_messages_arrive_in_order_and_whole() -> None:
    memory = Memory()
    messages = [
        [b"one"],
        [b"two", b"data"],
        [b""],
        [b"", b""],
        [b"x" * 100, b"y" * 999],
    ]
    for message in messages:
        assert memory.writer.write(list(message))
    assert [memory.take() for _ in messages] == messages
    assert memory.take() is None


def test_data_is_lent_until_it_is_done() -> None:
    memory = Memory()
    memory.writer.write([b"head", b"data"])
    frames = memory.reader.read()
    assert frames is not None
    assert frames[1] == b"data"
    assert memory.words[1][CONSUMED] == 0
    memory.reader.done()
    assert memory.words[1][CONSUMED] == 1
    with pytest.raises(ValueError, match="released"):
        bytes(frames[1])


class Died(BaseException):
    pass


class Dying:
    """Memory whose writer dies after so many stores; a long one is torn too."""

    def __init__(self, memory: memoryview, stores: list[int]) -> None:
        self.memory = memory
        self.stores = stores

    def __len__(self) -> int:
        return len(self.memory)

    def __setitem__(self, key: int | slice, value: Any) -> None:
        if isinstance(key, int):
            self.store(key, value)
        else:
            half = (key.start + key.stop) // 2
            self.store(slice(key.start, half), value[: half - key.start])
            self.store(slice(half, key.stop), value[half - key.start :])

    def store(self, key: Any, value: Any) -> None:
        if not self.stores[0]:
            raise Died
        self.stores[0] -= 1
        self.memory[key] = value


@pytest.mark.parametrize("data", [[], [b"data" * 5]])
@pytest.mark.parametrize("wraps", [False, True])
def test_a_writer_that_dies_leaves_a_whole_message_or_none(
    data: list[bytes], wraps: bool
) -> None:
    """It dies before each of its stores, one after the other."""
    before, message = [b"before", b"it"], [b"head" * 9, *data]
    outcomes = []
    for stores in range(12):
        memory = Memory(limit=LEAST)
        if wraps:
            memory.writer.write([b"x" * (LEAST - 50)])
            memory.take()
        memory.writer.write(list(before))
        if wraps:
            assert memory.take() == before
        left, writer = [stores], memory.writer
        writer._own = cast("memoryview", Dying(memory.words[0], left))
        writer._space = cast("memoryview", Dying(memory.space, left))
        try:
            memory.writer.write(list(message))
            died = False
        except Died:
            died = True
        if not wraps:
            assert memory.take() == before
        assert memory.take() == (None if died else message)
        outcomes.append(died)
    stored = 7 if data else 5  # sizes, head and data in halves, and the count
    stored += 2 if wraps else 0
    assert outcomes == [True] * stored + [False] * (12 - stored)


def test_there_is_room_again_when_the_reader_has_read() -> None:
    memory = Memory(limit=LEAST)
    message = [b"x" * 50]
    written = 0
    while memory.writer.write(list(message)):
        written += 1
    assert 50 < written <= LEAST // 50
    assert memory.take() == message
    assert memory.take() == message
    assert memory.writer.write(list(message))
    rest = 0
    while memory.take() is not None:
        rest += 1
    assert rest == written - 1


def test_space_grows_for_a_message_and_shrinks_when_all_is_read() -> None:
    memory = Memory()
    large = [b"head", b"x" * (2 * LEAST)]
    memory.writer.write(list(large))
    assert memory.reserved == memory.writer.reserved == 3 * LEAST
    assert not memory.writer.shrink()  # it has not been read
    assert memory.reserved == 3 * LEAST
    assert memory.take() == large
    assert memory.writer.shrink()  # the reader has to go back to the start first
    assert not memory.writer.shrink()
    assert memory.take() == [b""]
    assert not memory.writer.shrink()
    assert memory.reserved == memory.writer.reserved == LEAST
    memory.writer.write([b"next"])
    assert memory.take() == [b"next"]
    assert not memory.writer.shrink()


def test_a_message_for_which_there_is_no_memory() -> None:
    memory = Memory(limit=LEAST)
    memory.writer.write([b"small"])
    large = [b"head", b"x" * LEAST]
    assert not memory.writer.write(list(large))  # there may be, once this is read
    memory.take()
    assert not memory.writer.write(list(large))  # nor this, at the start
    assert memory.take() == [b""]
    with pytest.raises(FullError):
        memory.writer.write(list(large))
    assert memory.take() is None
    memory.writer.write([b"small"])
    assert memory.take() == [b"small"]


def test_a_message_that_is_larger_than_the_ring() -> None:
    memory = Memory()
    memory.writer.write([b"small"])
    with pytest.raises(FullError):
        memory.writer.write([b"head", b"x" * SPACE])
    assert memory.take() == [b"small"]
    assert memory.take() is None


def test_messages_that_fill_the_ring() -> None:
    """Each has to wait until the reader is back at the start."""
    memory = Memory(space=LEAST)
    most = LEAST - 24
    for letter in (b"x", b"y"):
        message = [letter * most]
        while not memory.writer.write(list(message)):
            assert memory.take() == [b""]
        assert memory.take() == message
    with pytest.raises(FullError):
        memory.writer.write([b"x" * (most + 1)])


@pytest.mark.parametrize("read", [2, 2**63])
def test_a_reader_that_has_read_too_much(read: int) -> None:
    memory = Memory()
    memory.writer.write([b"x"])
    memory.words[1][CONSUMED] = read
    with pytest.raises(ProtocolError):
        memory.writer.write([b"x"])


def test_a_reader_that_goes_backwards() -> None:
    memory = Memory()
    memory.writer.write([b"x"])
    memory.take()
    memory.writer.write([b"x"])
    memory.words[1][CONSUMED] = 0
    with pytest.raises(ProtocolError):
        memory.writer.write([b"x"])


@given(st.binary(max_size=256))
def test_any_memory_gives_messages_or_an_error(garbage: bytes) -> None:
    memory = Memory(space=256)
    memory.space[: len(garbage)] = garbage
    memory.words[0][PUBLISHED] = 3
    try:
        while memory.take() is not None:
            pass
    except ProtocolError:
        pass


def test_a_mark_that_leads_to_a_mark() -> None:
    memory = Memory(space=LEAST)
    memory.space[:16] = b"\xff" * 16
    memory.words[0][PUBLISHED] = 1
    with pytest.raises(ProtocolError):
        memory.take()


class Ring(RuleBasedStateMachine):
    """A ring against a queue."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = Memory(8 * SMALL, 8 * SMALL, SMALL)
        self.queue: deque[list[bytes]] = deque()
        self.full = False
        self.letter = 0

    def frames(self, sizes: tuple[int, int | None]) -> list[bytes]:
        self.letter = self.letter % 255 + 1
        return [bytes([self.letter]) * size for size in sizes if size is not None]

    @rule(
        sizes=st.tuples(
            st.integers(0, 2 * SMALL),
            st.none() | st.integers(0, 4 * SMALL),
        )
    )
    def write(self, sizes: tuple[int, int | None]) -> None:
        message = self.frames(sizes)
        try:
            if self.memory.writer.write(list(message)):
                self.queue.append(message)
                return
            if len(self.memory.writer._unread) > len(self.queue):
                self.queue.append([b""])
            assert self.queue
        except FullError:
            size = sum(map(len, message)) + 31  # with all that stands around it
            assert size > 8 * SMALL or (not self.queue and size > self.memory.reserved)

    @precondition(lambda self: self.queue)
    @rule()
    def read(self) -> None:
        assert self.memory.take() == self.queue.popleft()

    @precondition(lambda self: not self.queue)
    @rule()
    def find_nothing(self) -> None:
        assert self.memory.take() is None

    @rule(limit=st.integers(1, 8))
    def squeeze(self, limit: int) -> None:
        """Others take memory of the machine, or give it back."""
        self.memory.limit = limit * SMALL

    @rule()
    def shrink(self) -> None:
        if self.memory.writer.shrink():
            self.queue.append([b""])

    @invariant()
    def knows_whether_something_waits(self) -> None:
        unread = self.memory.words[0][PUBLISHED] - self.memory.reader.count
        assert unread == len(self.queue)
        assert self.memory.reserved == self.memory.writer.reserved


Ring.TestCase.settings = settings(max_examples=100, stateful_step_count=50)
TestRing = Ring.TestCase

"""What rank 0 sends to all stands once, and stays for as long as somebody reads it."""

from __future__ import annotations

import contextlib
import logging
import os
import random
from collections.abc import Iterator

import pytest

from zcoll.engine.bell import Bell
from zcoll.errors import ProtocolError
from zcoll.transport.lane.bell import Ringer, bell_ticket
from zcoll.transport.lane.lane import LEAST as RING
from zcoll.transport.lane.lane import SIZE as LANE
from zcoll.transport.lane.lane import Lane
from zcoll.transport.lane.regions import IDLE, LEAST, SIZE, Regions
from zcoll.transport.lane.segment import Segment

MIB = 1024 * 1024


class Family:
    """Rank 0's ends of some lanes, and the replicas' ends, in one process."""

    def __init__(self, replicas: int) -> None:
        self.bell = Bell()
        self.regions = Regions()
        self.segments: list[Segment] = []  # the replicas' maps of the regions
        self.ends: list[Lane] = []
        self.replicas: list[Lane] = []
        for _ in range(replicas):
            self.add()

    def add(self) -> None:
        """One more replica."""
        made = Segment.create(LANE)
        opened = Segment.open(made.ticket)
        end = Lane(opened, self.ringer(), made=False, regions=self.regions)
        regions = Segment.open(self.regions.ticket, writable=False)
        regions.claim(end.claim)
        self.ends.append(end)
        self.segments.append(regions)
        self.replicas.append(Lane(made, self.ringer(), made=True, read=regions))

    def ringer(self) -> Ringer:
        return Ringer(bell_ticket(self.bell.fd))

    def send(self, data: bytes | bytearray | memoryview, *to: int) -> None:
        """Send to some replicas, or to all."""
        for number in to or range(len(self.ends)):
            self.ends[number].send([b"head", memoryview(data)])

    def take(self, *by: int) -> list[bytes]:
        """Take one message by some replicas, or by all."""
        taken = []
        for number in by or range(len(self.replicas)):
            frames = self.replicas[number].take()
            while frames is None:  # it was only taken back to its ring's start
                assert self.ends[number].backlog
                self.ends[number].flush()
                frames = self.replicas[number].take()
            taken.append(bytes(frames[1]))
        return taken

    def rest(self) -> None:
        """Nobody looks any more at what was taken last."""
        for replica in self.replicas:
            assert replica.take() is None

    @property
    def used(self) -> list[int]:
        """Where the regions begin."""
        return [region.start for region in self.regions._regions]

    def close(self) -> None:
        for lane in (*self.ends, *self.replicas):
            lane.close()
        self.regions.close()
        self.bell.close()


@pytest.fixture
def family() -> Iterator[Family]:
    before = len(os.listdir("/proc/self/fd"))
    family = Family(3)
    with contextlib.closing(family):
        yield family
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_all_get_stands_once(family: Family) -> None:
    data = os.urandom(MIB)
    family.send(data)
    assert len(family.used) == 1
    assert family.regions.reserved == MIB + 4096
    assert family.take() == [data] * 3


def test_it_is_known_by_its_place_in_memory(family: Family) -> None:
    memory = bytearray(os.urandom(2 * LEAST))
    halves = [memoryview(memory)[:LEAST], memoryview(memory)[LEAST:]]
    for half in halves:
        family.send(half)
    family.send(bytes(halves[0]))  # the same bytes, elsewhere
    assert len(family.used) == 3
    for half in (*halves, halves[0]):
        assert family.take() == [half] * 3


def test_memory_that_is_known_is_used_for_nothing_else(family: Family) -> None:
    memory = bytearray(LEAST)
    family.send(memory)
    with pytest.raises(BufferError):
        memory.clear()
    family.take()
    family.rest()
    family.send(bytes(LEAST))
    memory.clear()


def test_replicas_cannot_write_it(family: Family) -> None:
    family.send(bytes(LEAST))
    frames = family.replicas[0].take()
    assert frames is not None
    lent = frames[1]
    assert isinstance(lent, memoryview)
    assert lent.readonly
    family.replicas[0].take()
    with pytest.raises(ValueError, match="released"):
        bytes(lent)


def test_memory_is_used_again_once_all_have_consumed_it(family: Family) -> None:
    first, second, third = (os.urandom(LEAST) for _ in range(3))
    family.send(first)
    family.take(0, 1)
    (place,) = family.used
    family.send(second)  # replica 2 has not looked yet; 0 and 1 are still looking
    assert len(family.used) == 2
    assert family.take(2) == [first]
    assert family.take() == [second] * 3
    family.rest()
    family.send(third)
    assert family.used == [place]
    assert family.take() == [third] * 3


def test_what_some_get_makes_room_when_it_is_needed(family: Family) -> None:
    """Others might be sent it later; they are, if there is room."""
    count = 2 * SIZE // MIB
    for number in range(count):
        family.send(bytes([number]) * MIB, 0)
        assert family.take(0) == [bytes([number]) * MIB]
    assert 1 < len(family.used) < SIZE // MIB
    family.send(last := os.urandom(MIB), 0, 2)
    assert family.take(0, 2) == [last, last]


def test_what_does_not_fit_goes_through_the_rings(family: Family) -> None:
    """A replica that does not look keeps nobody from getting what comes."""
    sent = [os.urandom(MIB) for _ in range(SIZE // MIB + 2)]
    for data in sent:
        family.send(data)
        assert family.take(0, 1) == [data, data]
    assert len(family.used) == SIZE // MIB - 1
    assert [family.take(2)[0] for _ in sent] == sent


def test_small_data_goes_through_the_rings(family: Family) -> None:
    family.send(bytes(LEAST - 1))
    family.send(b"")
    assert not family.used
    assert family.take() == [bytes(LEAST - 1)] * 3
    assert family.take() == [b""] * 3


def test_the_only_replica_is_sent_all_through_its_ring() -> None:
    with contextlib.closing(Family(1)) as alone:
        alone.send(bytes(LEAST))
        assert not alone.used
        assert alone.take() == [bytes(LEAST)]
        alone.add()
        alone.send(bytes(LEAST))
        assert len(alone.used) == 1


def test_a_replica_that_cannot_read_regions(family: Family) -> None:
    data = os.urandom(LEAST)
    family.ends[1].use_no_regions()
    family.send(data)
    assert family.regions._regions[0].sent == 2
    assert family.take() == [data] * 3


def test_a_reference_waits_for_room_in_a_ring(family: Family) -> None:
    """What it refers to is written once more, if it must, but never missing."""
    heads = [os.urandom(RING // 2) for _ in range(200)]
    for head in heads:
        family.ends[0].send([head])
    family.send(first := os.urandom(LEAST), 0)
    assert family.ends[0].backlog
    family.send(second := os.urandom(LEAST), 1, 2)
    for head in heads:
        assert family.replicas[0].take() == [head]
        family.ends[0].flush()
    assert family.take() == [first, second, second]


def test_who_dies_has_let_go(family: Family) -> None:
    family.send(bytes(LEAST))
    family.take(0, 1)
    (place,) = family.used
    family.replicas.pop().close()  # as the system does it
    family.ends.pop().close()
    family.rest()
    family.send(data := os.urandom(LEAST))
    assert family.used == [place]
    assert family.take() == [data, data]


def test_who_is_given_up_may_still_read(family: Family) -> None:
    """As a process that was stopped: it must not take other data for what it got."""
    family.send(first := os.urandom(LEAST))
    family.take(0, 1)
    family.ends.pop().close()
    family.replicas[0].take()
    family.replicas[1].take()
    for _ in range(3):
        family.send(bytes(LEAST))
    family.regions.tick(100.0)
    family.regions.tick(100.0 + IDLE)
    assert family.take(2) == [first]
    family.replicas.pop().close()
    assert family.take() == [bytes(LEAST)] * 2


def test_no_room(
    family: Family, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Data goes through the rings, and the system is not asked each time."""
    reserve, regions = Segment.reserve, family.regions._segment

    def refuse(segment: Segment, start: int, size: int) -> bool:
        return segment is not regions and reserve(segment, start, size)

    with monkeypatch.context() as full, caplog.at_level(logging.DEBUG):
        full.setattr(Segment, "reserve", refuse)
        for _ in range(3):
            family.send(data := os.urandom(MIB))
            assert family.take() == [data] * 3
    assert not family.used
    assert len(caplog.records) == 1
    family.regions.tick(100.0)
    family.regions.tick(100.0 + IDLE)  # there may be room now
    family.send(bytes(MIB))
    assert len(family.used) == 1


def test_memory_is_given_back_when_it_has_been_idle(family: Family) -> None:
    at_rest = family.regions.reserved
    sent = [os.urandom(MIB) for _ in range(5)]
    for data in sent:
        family.send(data)
    family.regions.tick(100.0)
    family.take()
    family.take()
    family.regions.tick(100.0 + IDLE / 2)
    assert family.regions.reserved == at_rest + 5 * MIB
    family.regions.tick(100.0 + IDLE)  # three have not been read
    assert family.regions.reserved == at_rest + 5 * MIB
    assert [family.take() for _ in range(3)] == [[data] * 3 for data in sent[2:]]
    family.rest()
    family.regions.tick(101.0 + IDLE)
    assert family.regions.reserved == at_rest
    family.send(sent[0])
    assert family.take() == [sent[0]] * 3


@pytest.mark.parametrize(
    ("start", "size"), [(0, SIZE + 1), (SIZE, 1), (2**64 - 1, 1), (SIZE - 5, 6)]
)
def test_references_to_elsewhere(family: Family, start: int, size: int) -> None:
    assert family.ends[0]._writer.refer(b"head", start, size)
    with pytest.raises(ProtocolError, match="memory that there is not"):
        family.replicas[0].take()


def test_references_that_are_none(family: Family) -> None:
    assert family.ends[0]._writer.write([b"head", bytes(15)], 0x80000000)
    with pytest.raises(ProtocolError, match="that is none"):
        family.replicas[0].take()


def test_references_where_there_must_not_be_any(family: Family) -> None:
    """Rank 0 reads no regions of a replica."""
    assert family.replicas[0]._writer.refer(b"head", 0, 1)
    with pytest.raises(ProtocolError, match="memory that there is not"):
        family.ends[0].take()


def test_a_forked_child_changes_nothing(family: Family) -> None:
    family.send(data := os.urandom(LEAST))
    child = os.fork()
    if child == 0:
        family.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    family.send(os.urandom(LEAST))
    assert family.take() == [data] * 3


@pytest.mark.parametrize("seed", range(5))
def test_everybody_gets_what_was_sent(seed: int) -> None:
    """Any sizes to anybody, readers of any speed, and some that are given up."""
    chance = random.Random(seed)
    with contextlib.closing(Family(5)) as family:
        expected: list[list[bytes]] = [[] for _ in range(5)]
        known = [bytes(LEAST)]
        for _ in range(400):
            if chance.random() < 0.5:
                known = [*known[-3:], chance.randbytes(chance.randrange(600_000))]
            data = chance.choice(known)
            for to in range(len(family.ends)):
                if chance.random() < 0.7:
                    family.send(data, to)
                    expected[to].append(data)
            for by, wanted in enumerate(expected[: len(family.ends)]):
                while wanted and chance.random() < 0.6:
                    assert family.take(by) == [wanted.pop(0)]
            if chance.random() < 0.005 and len(family.ends) > 3:
                lost = family.ends.pop()
                unsent = len(lost.backlog)
                wanted = expected[len(family.ends)]
                del wanted[len(wanted) - unsent :]
                lost.close()
        for by, wanted in enumerate(expected):
            for data in wanted:
                assert family.take(by) == [data]

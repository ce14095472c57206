from __future__ import annotations

import contextlib
import errno
import os
import select
from collections.abc import Iterator

import pytest

from zcoll.engine.bell import Bell
from zcoll.transport.lane.bell import Ringer, bell_ticket
from zcoll.transport.lane.lane import IDLE, LEAST, SIZE, SPACE, Lane, fence
from zcoll.transport.lane.ring import FullError
from zcoll.transport.lane.segment import Segment, UnavailableError


class Pair:
    """Both sides of a lane, in one process."""

    def __init__(self) -> None:
        self.bells = [Bell(), Bell()]
        self.segment = Segment.create(SIZE)
        opened = Segment.open(self.segment.ticket)
        ringers = [Ringer(bell_ticket(bell.fd)) for bell in self.bells]
        self.one = Lane(self.segment, ringers[1], made=True)
        self.two = Lane(opened, ringers[0], made=False)

    def rung(self, side: int) -> bool:
        """Whether a side has been rung since this was asked last."""
        ready, _, _ = select.select([self.bells[side].fd], [], [], 0)
        self.bells[side].silence()
        return bool(ready)

    def close(self) -> None:
        self.one.close()
        self.two.close()
        for bell in self.bells:
            bell.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    before = len(os.listdir("/proc/self/fd"))
    pair = Pair()
    with contextlib.closing(pair):
        yield pair
    assert len(os.listdir("/proc/self/fd")) == before


def send(lane: Lane, *frames: bytes) -> None:
    lane.send(list(frames))
    fence()
    lane.ring()


def take(lane: Lane) -> list[bytes] | None:
    frames = lane.take()
    return None if frames is None else [bytes(frame) for frame in frames]


def test_both_directions(pair: Pair) -> None:
    send(pair.one, b"up", b"data")
    send(pair.two, b"down")
    assert pair.two.waiting
    assert pair.two.unread == 1
    assert take(pair.two) == [b"up", b"data"]
    assert take(pair.one) == [b"down"]
    assert take(pair.one) is None
    assert not pair.one.waiting


def test_what_is_lent_cannot_be_written_or_kept(pair: Pair) -> None:
    send(pair.one, b"head", b"data")
    frames = pair.two.take()
    assert frames is not None
    lent = frames[1]
    assert isinstance(lent, memoryview)
    assert lent.readonly
    assert bytes(lent) == b"data"
    pair.two.take()
    with pytest.raises(ValueError, match="released"):
        bytes(lent)


def test_who_is_awake_is_not_rung(pair: Pair) -> None:
    send(pair.one, b"x")
    assert not pair.rung(1)


def test_who_sleeps_is_rung_once_for_each_sleep(pair: Pair) -> None:
    for _ in range(3):
        pair.two.lie_down()
        send(pair.one, b"x")
        assert pair.rung(1)
        send(pair.one, b"y")
        assert not pair.rung(1)
        pair.two.get_up()
        send(pair.one, b"z")
        assert not pair.rung(1)


def test_who_lies_down_late_sees_what_was_sent(pair: Pair) -> None:
    """Whichever of the two comes first, one of them notices."""
    send(pair.one, b"x")
    pair.two.lie_down()
    fence()
    assert pair.two.waiting


def test_what_does_not_fit_waits_for_room(pair: Pair) -> None:
    data = bytes(SPACE // 3)
    for _ in range(5):
        send(pair.one, b"head", data)
    assert len(pair.one.backlog) == 3
    assert not pair.one.waiting
    pair.one.lie_down()
    fence()
    for _ in range(2):
        assert take(pair.two) == [b"head", data]
    assert pair.rung(0)  # when the first one is read, so that both work at a time
    assert pair.one.waiting
    pair.one.get_up()
    taken = 2
    while pair.one.backlog or pair.two.unread:
        pair.one.flush()
        taken += take(pair.two) is not None
    assert taken == 5


def test_who_sleeps_without_a_backlog_is_not_rung_for_room(pair: Pair) -> None:
    send(pair.one, b"x")
    pair.one.lie_down()
    assert take(pair.two) == [b"x"]
    assert take(pair.two) is None
    assert not pair.rung(0)


def test_memory_is_given_back_when_it_has_been_idle(pair: Pair) -> None:
    at_rest = pair.segment.reserved
    pair.one.tick(0.0)
    send(pair.one, b"head", bytes(2_000_000))
    assert pair.segment.reserved > at_rest + 1_900_000
    pair.one.tick(100.0)
    take(pair.two)
    take(pair.two)
    pair.one.tick(100.0 + IDLE / 2)
    assert pair.segment.reserved > at_rest + 1_900_000
    pair.two.lie_down()
    pair.one.tick(100.0 + IDLE)  # the reader has to go back to the start first
    pair.one.ring()
    assert pair.rung(1)
    assert pair.two.waiting
    assert take(pair.two) is None
    pair.one.tick(101.0 + IDLE)
    assert pair.segment.reserved == at_rest
    send(pair.one, b"next", bytes(LEAST))
    assert take(pair.two) == [b"next", bytes(LEAST)]


def test_there_is_no_room_for_a_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    segment, bell = Segment.create(SIZE), Bell()
    ringer = Ringer(bell_ticket(bell.fd))
    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(UnavailableError, match="no room"):
        Lane(segment, ringer, made=True)
    segment.close()
    ringer.close()
    bell.close()


def test_there_is_no_room_for_a_message(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sent before it arrives; it and what follows can be taken back."""
    monkeypatch.setattr(os, "posix_fallocate", refuse)
    send(pair.one, b"before")
    large = [b"head", bytes(LEAST)]
    pair.one.send(list(large))
    pair.one.send([b"after"])
    assert take(pair.two) == [b"before"]
    assert take(pair.two) is None
    pair.one.flush()  # the reader goes back to the start, in vain
    assert take(pair.two) is None
    with pytest.raises(FullError):
        pair.one.flush()
    assert pair.one.take_back() == [large, [b"after"]]
    assert take(pair.two) is None


def refuse(descriptor: int, start: int, size: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")

"""The other process of the tests of the lane, and what both of them do.

It is given, as JSON on its standard input, the tickets of the memory and the bell,
and what to do; it prints the ticket of its own bell.
"""

from __future__ import annotations

import json
import random
import select
import struct
import sys
import zlib
from dataclasses import asdict
from typing import TYPE_CHECKING

from zcoll.engine.bell import Bell
from zcoll.transport.lane.bell import Ringer, bell_ticket
from zcoll.transport.lane.lane import Lane, fence
from zcoll.transport.lane.segment import Segment, Ticket

if TYPE_CHECKING:
    from zcoll.payload import Buffer

LIMIT = 20.0  # seconds without a bell after which it must have been lost
_HEAD = struct.Struct("=QQI")  # number, size, checksum


class Side:
    """One side of a lane, with a bell."""

    def __init__(self, lane: Lane, bell: Bell) -> None:
        self.lane = lane
        self.bell = bell

    def wait(self) -> None:
        """Sleep until there is something to do."""
        while not self.lane.waiting:
            self.lane.lie_down()
            fence()
            if not self.lane.waiting:
                ready, _, _ = select.select([self.bell.fd], [], [], LIMIT)
                assert ready, "a wake-up was lost"
            self.lane.get_up()
            self.bell.silence()

    def send(self, frames: list[Buffer]) -> None:
        self.lane.send(frames)
        fence()
        self.lane.ring()

    def flush(self) -> None:
        """Wait until nothing waits for room any more."""
        while self.lane.backlog:
            self.wait()
            self.lane.flush()
            fence()
            self.lane.ring()

    def close(self) -> None:
        self.lane.close()
        self.bell.close()


def message(number: int, chance: random.Random) -> list[Buffer]:
    """Make a message of any size that can be told from all others."""
    size = chance.choice([0, 10, 1000, 60_000, 300_000])
    data = bytes([number % 251]) * chance.randint(0, size)
    head = _HEAD.pack(number, len(data), zlib.crc32(data))
    return [head, data] if data else [head]


def check(frames: list[Buffer], number: int) -> None:
    """Check that a message is whole, and the one that is expected."""
    data = frames[1] if len(frames) == 2 else b""
    assert _HEAD.unpack(frames[0]) == (number, len(data), zlib.crc32(data))


def main() -> None:
    """Do what the test wants."""
    asked = json.loads(sys.stdin.readline())
    bell = Bell()
    segment = Segment.open(Ticket.read(asked["memory"]))
    side = Side(Lane(segment, Ringer(Ticket.read(asked["bell"])), made=False), bell)
    sys.stdout.write(json.dumps(asdict(bell_ticket(bell.fd))) + "\n")
    sys.stdout.flush()
    chance = random.Random(asked["seed"])
    for number in range(asked["count"]):
        if asked["what"] == "echo":
            while (frames := side.lane.take()) is None:
                side.wait()
            check(frames, number)
            side.send([bytes(frame) for frame in frames])
        else:
            side.send(message(number, chance))
        side.flush()


if __name__ == "__main__":
    main()

"""A lane with its two processes, on a simulated machine."""

from __future__ import annotations

from collections import Counter
from unittest import mock

from lane_machine import Machine
from lane_sides import HubSide, ReplicaSide, RouterSocket, Side, Socket

from zcoll.transport.lane import lane as lanes
from zcoll.wire import Kind, Message

LEAST = 512
SPACE = 8 * LEAST
FIRST_RING = 4096
LONGEST = 12  # messages that each side sends, at most


class Fence:
    """In place of the lock that is the package's fence."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def __enter__(self) -> None:
        self._machine.fence()

    def __exit__(self, *error: object) -> None:
        pass


class World:
    """A lane's two processes, and all that they share.

    Args:
        seed: Of all that is chosen.
        deaths: The step at which a side dies, for those that do.

    Attributes:
        full: How often there is no room for more memory.
        counts: What has happened, and how often.
    """

    def __init__(self, seed: int, deaths: dict[int, int] | None = None) -> None:
        self.machine = Machine(seed)
        self.chance = self.machine.chance
        self.memory = bytearray(FIRST_RING + 2 * SPACE)
        self.reserved = bytearray(len(self.memory))
        self.full = self.chance.choice([0.0, 0.0, 0.5, 1.0])
        self.counts: Counter[str] = Counter()
        self._deaths = deaths or {}
        hub, replica = self.machine.processors
        sockets = [RouterSocket(hub), Socket(replica)]
        sockets[0].other, sockets[1].other = sockets[::-1]
        self.sides: list[Side] = [
            HubSide(hub, self, sockets[0]),
            ReplicaSide(replica, self, sockets[1]),
        ]
        self.sides[0].other, self.sides[1].other = self.sides[::-1]
        for side, step in self._deaths.items():
            self.machine.processors[side].last = step

    def draw_messages(self) -> list[Message]:
        """What one of the sides is to send."""
        chance = self.chance
        sizes = chance.choice([[40], [0, 40, 300], [300, 1500], [10, 2 * SPACE]])
        messages = []
        for number in range(1, chance.randint(0, LONGEST) + 1):
            content = bytes([number]) * chance.randint(0, chance.choice(sizes))
            message = Message(Kind.OUTCOME, number=number, body=content)
            if chance.random() < 0.5:
                message = Message(Kind.CHUNK, number=number, data=content)
            messages.append(message)
        return messages

    def run(self) -> Counter[str]:
        """Run both sides to their ends, and check what has come of it."""
        fence = Fence(self.machine)
        with mock.patch.multiple(lanes, LEAST=LEAST, SPACE=SPACE, _lock=fence):
            self.machine.run([side.live for side in self.sides])
        for side in self.sides:
            sent = side.other.messages
            assert side.received == sent[: len(side.received)]
            assert self._deaths or len(side.received) == len(sent)
        if not self._deaths:
            self.memory.append(0)  # impossible as long as somebody can look at it
        return self.counts

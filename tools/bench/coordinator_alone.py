"""Rank 0's machine alone: frames in, frames out, and no processes at all.

What a call costs there is what the protocol costs: no socket, no pickling, no fold.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zcoll.operations import ALLREDUCE
from zcoll.payload import Payload
from zcoll.protocol.coordinator import Coordinator
from zcoll.protocol.events import LOCAL, Fold, Identity, Send, Timing
from zcoll.protocol.identities import write_identity
from zcoll.wire import Kind, Message, pack, pack_fields, parse

if TYPE_CHECKING:
    from zcoll.payload import Buffer
    from zcoll.protocol.events import Peer

BATCH = 256  # messages that the engine takes in before it sends
CALLS = 7  # measured
_SESSION = 1
_VALUE = bytes(64)


def _identity(rank: int, size: int) -> Identity:
    return Identity(rank, size, "host", 1000 + rank, 5000 + rank, "1.0", "3.11")


class Crowd:
    """A coordinator, and as many replicas as only it knows of."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._machine = Coordinator(_identity(0, size), _SESSION, "job", Timing())
        self._machine.announce()
        self._peers: list[Peer] = [LOCAL]
        self._peers += [b"peer %d" % rank for rank in range(1, size)]
        self._sent = 0  # messages that each replica has sent
        self._heard = dict.fromkeys(self._peers, 0)  # their last message's number
        self._outcomes = 0
        for rank in range(1, size):
            fields = {**write_identity(_identity(rank, size)), "job": "job"}
            hello = Message(Kind.HELLO, body=pack_fields({**fields, "session": 0}))
            self._machine.receive(self._peers[rank], hello, 0.0)
            self._obey()

    def contributions(self, seq: int) -> list[list[Buffer]]:
        """What the replicas send for a call, all but rank 0's, as frames."""
        self._sent += 1
        return [
            pack(
                Message(
                    Kind.CONTRIBUTE,
                    operation=ALLREDUCE.code,
                    rank=rank,
                    session=_SESSION,
                    seq=seq,
                    number=self._sent,
                    ack=self._heard[self._peers[rank]],
                    site="train.py:10 main",
                    body=_VALUE,
                )
            )
            for rank in range(1, self.size)
        ]

    def call(self, seq: int, arriving: list[list[Buffer]]) -> None:
        """Take all contributions in, and send the outcome to everybody.

        Raises:
            AssertionError: Not everybody got it.
        """
        own = Message(Kind.CONTRIBUTE, operation=ALLREDUCE.code, seq=seq)
        own.site, own.payload = "train.py:10 main", Payload([_VALUE])
        self._outcomes = 0
        self._machine.receive(LOCAL, own, 1.0)
        for index, frames in enumerate(arriving, 1):
            self._machine.receive(self._peers[index], parse(frames), 1.0)
            if index % BATCH == 0:
                self._obey()
        self._obey()
        assert self._outcomes == self.size, (self._outcomes, self.size)

    def _obey(self) -> None:
        while instructions := self._machine.take():
            for each in instructions:
                if isinstance(each, Send):
                    self._send(each)
                elif isinstance(each, Fold) and each.last:
                    result = [Payload([_VALUE], stable=True)]
                    self._machine.folded(each.group, each.call.seq, result, None)

    def _send(self, send: Send) -> None:
        message = send.message
        self._outcomes += message.kind is Kind.OUTCOME
        if send.peer != LOCAL:
            pack(message)
            if message.number:
                self._heard[send.peer] = message.number


@dataclass(frozen=True, slots=True)
class Alone:
    """What a call costs in rank 0's machine.

    Attributes:
        size: The number of replicas.
        median: Seconds of processor time of a call.
        peak: Bytes that a call needs at most, beyond what is there before.
    """

    size: int
    median: float
    peak: int


def measure_alone(size: int) -> Alone:
    """The time of some calls, then the memory of one more."""
    crowd = Crowd(size)
    crowd.call(1, crowd.contributions(1))
    times = []
    for seq in range(2, 2 + CALLS):
        arriving = crowd.contributions(seq)
        began = time.process_time()
        crowd.call(seq, arriving)
        times.append(time.process_time() - began)
    arriving = crowd.contributions(2 + CALLS)
    tracemalloc.start()
    crowd.call(2 + CALLS, arriving)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Alone(size, statistics.median(times), peak)

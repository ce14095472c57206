"""The limit: the messages of zcoll's calls in bare pyzmq, and nothing else.

What is sent is made beforehand, and what is received is dropped: no pickling, no fold,
no protocol. Whoever calls drives the socket.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import zmq

from bench.cells import OUTSTANDING

if TYPE_CHECKING:
    from bench.orders import Place
    from bench.payloads import Payload
    from bench.peers.contract import Call

_HEADER = 64  # bytes in front of each value
_CHUNK = 1 << 20  # bytes of a message at most
_ZERO_COPY = 1 << 16  # bytes of a frame from which it is not copied


def frames_of(payload: Payload) -> list[bytes]:
    """A value as messages, one frame each."""
    data = bytes(_HEADER) + pickle.dumps(payload.make(), protocol=5)
    return [data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK)]


@dataclass(frozen=True, slots=True)
class Round:
    """The messages of one call.

    Attributes:
        up: What each of the others sends to rank 0.
        down: What rank 0 then sends to each of them.
    """

    up: list[bytes]
    down: list[bytes]


class Wires:
    """A ROUTER at rank 0, a DEALER at each other rank."""

    def __init__(self, rank: int, size: int, place: Place) -> None:
        self.rank = rank
        self.others: list[bytes] = []
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER if rank else zmq.ROUTER)
        self.socket.sndhwm = self.socket.rcvhwm = 0
        endpoint = f"ipc://{Path(place.directory) / 'limit'}"
        if rank:
            self.socket.connect(endpoint)
            self.socket.send(b"here")
            self.socket.recv()
        else:
            self.socket.bind(endpoint)
            self.others = [self.socket.recv_multipart()[0] for _ in range(1, size)]
            self.send_down([b"complete"])

    def send_up(self, frames: list[bytes]) -> None:
        """From another rank to rank 0."""
        for frame in frames:
            self.socket.send(frame, 0, copy=len(frame) < _ZERO_COPY)

    def send_down(self, frames: list[bytes]) -> None:
        """From rank 0 to all others."""
        for frame in frames:
            copy = len(frame) < _ZERO_COPY
            for other in self.others:
                self.socket.send(other, zmq.SNDMORE)
                self.socket.send(frame, 0, copy=copy)

    def receive(self, flags: int = 0) -> None:
        """Take one message, and drop it."""
        if self.rank == 0:
            self.socket.recv(flags)
        self.socket.recv(flags, copy=False)

    def close(self) -> None:
        """Close, once all has been sent."""
        self.socket.linger = 1000
        self._context.destroy()


class Limit:
    """Rounds of messages, driven by the caller."""

    def __init__(self, rank: int, size: int, place: Place) -> None:
        self.wires = Wires(rank, size, place)

    def make(self, rounds: list[Round]) -> None:
        """Make some calls, all of them before the first answer is waited for."""
        wires = self.wires
        if wires.rank:
            for each in rounds:
                wires.send_up(each.up)
            for each in rounds:
                for _ in each.down:
                    wires.receive()
            return
        for each in rounds:
            for _ in range(len(each.up) * len(wires.others)):
                wires.receive()
            wires.send_down(each.down)

    def allreduce(self, payload: Payload) -> Call:
        """Values up, a value down."""
        frames = frames_of(payload)
        rounds = [Round(frames, frames)]
        return lambda: self.make(rounds)

    def broadcast(self, payload: Payload) -> Call:
        """A word up, a value down."""
        rounds = [Round([bytes(_HEADER)], frames_of(payload))]
        return lambda: self.make(rounds)

    def gather(self, payload: Payload) -> Call:
        """Values up, a word down."""
        rounds = [Round(frames_of(payload), [bytes(_HEADER)])]
        return lambda: self.make(rounds)

    def pipeline(self, payload: Payload) -> Call:
        """Many values up, as many down."""
        frames = frames_of(payload)
        rounds = [Round(frames, frames)] * OUTSTANDING
        return lambda: self.make(rounds)

    def close(self) -> None:
        """Leave."""
        self.wires.close()

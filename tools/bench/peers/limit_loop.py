"""The limit of a library with a loop thread: callers hand over to it and wait."""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import TYPE_CHECKING

import zmq

from bench.peers.limit import Limit, Round

if TYPE_CHECKING:
    from bench.orders import Place


class LimitLoop(Limit):
    """The same messages, but only a thread of its own touches the socket.

    It sleeps until a message or a call comes; a call writes to a pipe to wake it.
    """

    def __init__(self, rank: int, size: int, place: Place) -> None:
        super().__init__(rank, size, place)
        self._asked: deque[Round] = deque()
        self._under_way: deque[Round] = deque()
        self._arrived = 0
        self._answered = threading.Semaphore(0)
        self._wake_in, self._wake_out = os.pipe()
        self._ending = False
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def make(self, rounds: list[Round]) -> None:
        """Hand the calls over, and wait until each has been answered."""
        for each in rounds:
            self._asked.append(each)
            os.write(self._wake_out, b"\0")
        for _ in rounds:
            self._answered.acquire()

    def close(self) -> None:
        """End the thread, then leave."""
        self._ending = True
        os.write(self._wake_out, b"\0")
        self._thread.join()
        super().close()

    def _loop(self) -> None:
        poller = zmq.Poller()
        poller.register(self._wake_in, zmq.POLLIN)
        poller.register(self.wires.socket, zmq.POLLIN)
        while not self._ending:
            ready = dict(poller.poll())
            if self._wake_in in ready:
                os.read(self._wake_in, 4096)
            while self._asked:
                self._begin(self._asked.popleft())
            self._take_in()
            self._finish()

    def _begin(self, each: Round) -> None:
        if self.wires.rank:
            self.wires.send_up(each.up)
        self._under_way.append(each)

    def _take_in(self) -> None:
        while True:
            try:
                self.wires.receive(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._arrived += 1

    def _finish(self) -> None:
        """Answer the calls for which everything has arrived."""
        rank, others = self.wires.rank, len(self.wires.others)
        while self._under_way:
            each = self._under_way[0]
            needed = len(each.down) if rank else len(each.up) * others
            if self._arrived < needed:
                return
            self._arrived -= needed
            if rank == 0:
                self.wires.send_down(each.down)
            self._under_way.popleft()
            self._answered.release()

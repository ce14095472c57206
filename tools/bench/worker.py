"""One process of a group: joins by its peer's own means, and does what it is told.

Started by :mod:`bench.group` as ``python3 -m bench.worker VARIANT RANK SOCKET``.
"""

from __future__ import annotations

import os
import socket
import sys
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.orders import Failed, Ran, Run, Start, Started, Stop
from bench.payloads import PAYLOADS, is_right
from bench.variants import VARIANTS

if TYPE_CHECKING:
    from bench.peers.contract import Peer

_STATUS = Path("/proc/self/status")
_PEAK_RESET = Path("/proc/self/clear_refs")


def _memory(field: str) -> int:
    """A figure of this process in bytes: ``VmRSS`` now, ``VmHWM`` at most.

    It is 0 where there is no such figure: on macOS.
    """
    if not _STATUS.exists():
        return 0
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0


class Worker:
    """A rank of a group, and the orders that it obeys."""

    def __init__(self, variant: str, rank: int) -> None:
        self._variant = VARIANTS[variant]
        self._rank = rank
        self._size = 0
        self._peer: Peer | None = None

    def obey(self, order: Start | Run) -> Started | Ran:
        """Carry out an order."""
        return self._start(order) if isinstance(order, Start) else self._run(order)

    def close(self) -> None:
        """Leave the group."""
        if self._peer is not None:
            self._peer.close()

    def _start(self, order: Start) -> Started:
        start = self._variant.load()
        self._size = order.size
        began = time.perf_counter()
        self._peer = start(self._rank, order.size, order.place)
        return Started(began, time.perf_counter())

    def _run(self, order: Run) -> Ran:
        if _PEAK_RESET.exists():
            _PEAK_RESET.write_text("5")
        before = _memory("VmRSS")
        payload = PAYLOADS[order.payload]
        call = getattr(self._peer, order.what)(payload)
        ends: list[float] = []
        result: object = None
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(order.rounds):
            result = None  # given up before the next one is made
            result = call()
            ends.append(time.perf_counter())
        cpu = time.process_time() - cpu
        if order.check:
            self._check(order.what, payload, result)
        return Ran(began, ends, cpu, max(0, _memory("VmHWM") - before))

    def _check(self, what: str, payload: Any, result: object) -> None:
        if self._variant.keeps_values and not is_right(
            what, payload, result, self._rank, self._size
        ):
            raise ValueError(f"{what} of {payload.name} gave a wrong result")


def main() -> None:
    """Obey until told to stop, or until the bench is gone."""
    variant, rank, path = sys.argv[1:]
    number = int(os.environ.get("PMI_RANK", rank))  # mpiexec tells it in its own way
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        connection = Connection(line.detach())
    connection.send(number)
    worker = Worker(variant, number)
    while True:
        try:
            order = connection.recv()
        except EOFError:
            break
        if isinstance(order, Stop):
            worker.close()
            break
        try:
            connection.send(worker.obey(order))
        except Exception:
            connection.send(Failed(traceback.format_exc()))


if __name__ == "__main__":
    main()

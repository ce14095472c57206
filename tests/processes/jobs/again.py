"""Initialise and tear down many times, and watch what this process holds."""

from __future__ import annotations

import threading
import time

import numpy as np
import psutil
from report import report

import zcoll

ROUNDS = 50
WARM = 5  # rounds after which everything that is made once is there


def settled_threads() -> int:
    """Count the threads, once those that were told to end have done so."""
    deadline = time.monotonic() + 1
    while threading.active_count() > 1 and time.monotonic() < deadline:
        time.sleep(0.001)
    return threading.active_count()


def main() -> None:
    process = psutil.Process()
    held = []
    rank = -1
    for step in range(ROUNDS):
        zcoll.initialize()
        rank, size = zcoll.replica_rank(), zcoll.num_replicas()
        assert zcoll.allreduce(step) == step * size
        future = zcoll.allreduce_async(np.full(200_000, step))
        assert zcoll.broadcast(rank, root=step % size) == step % size
        assert (future.result(20) == step * size).all()
        zcoll.teardown()
        if step >= WARM:
            threads = settled_threads()
            held.append([process.num_fds(), threads, process.memory_info().rss])
    report(rank, held)


if __name__ == "__main__":
    main()

"""Initialise and tear down many times, and watch what this process holds."""

from __future__ import annotations

import sys
import threading
import time

import numpy as np
import psutil
from report import report

import zcoll

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 50
WARM = 5  # rounds after which everything that is made once is there


def count_threads(usual: int) -> int:
    """Count the threads, once those that were told to end have had time to."""
    deadline = time.monotonic() + 0.5
    while threading.active_count() > usual and time.monotonic() < deadline:
        time.sleep(0.001)
    return threading.active_count()


def work(step: int) -> None:
    """Make a group, use it, and tear it down."""
    zcoll.initialize()
    rank, size = zcoll.replica_rank(), zcoll.num_replicas()
    assert zcoll.allreduce(step) == step * size
    future = zcoll.allreduce_async(np.full(200_000, step))
    assert zcoll.broadcast(rank, root=step % size) == step % size
    assert (future.result(20) == step * size).all()
    zcoll.teardown()


def main() -> None:
    zcoll.initialize()
    rank = zcoll.replica_rank()
    zcoll.teardown()
    for step in range(WARM):
        work(step)
    usual = count_threads(usual=1)
    process = psutil.Process()
    held = []
    for step in range(ROUNDS):
        work(step)
        threads = count_threads(usual)
        held.append([process.num_fds(), threads, process.memory_info().rss])
    report(rank, held)


if __name__ == "__main__":
    main()

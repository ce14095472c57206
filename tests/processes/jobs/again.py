"""Initialise and tear down many times, and watch what this process holds."""

from __future__ import annotations

import threading

import numpy as np
import psutil
from report import report

import zcoll

ROUNDS = 50
WARM = 5  # rounds after which everything that is made once is there


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
            memory = process.memory_info().rss
            held.append([process.num_fds(), threading.active_count(), memory])
    report(rank, held)


if __name__ == "__main__":
    main()

"""Calls of random sizes, all results checked; one replica may kill itself meanwhile.

Arguments: the number of calls, the largest size in bytes, a seed, and for replicas
that die: their rank and the seconds until then.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from typing import Any

import numpy as np
from report import report

import zcoll


def value_of(rank: int, step: int, size: int) -> Any:
    """Make what a replica contributes: bytes, or an array if it is large."""
    if size < 1000:
        return bytes([(rank + step) % 256]) * size
    return np.full(size // 8, rank + step, np.int64)


def is_right(result: Any, num_replicas: int, step: int, size: int) -> bool:
    """Compare an allreduce's result with what it must be."""
    if size < 1000:
        parts = (value_of(rank, step, size) for rank in range(num_replicas))
        return bool(result == b"".join(parts))
    expected = num_replicas * (num_replicas - 1) // 2 + num_replicas * step
    return len(result) == size // 8 and bool((result == expected).all())


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def main() -> None:
    calls, largest, seed = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    before = descriptors()
    zcoll.initialize()
    rank, size = zcoll.replica_rank(), zcoll.num_replicas()
    if len(sys.argv) > 4 and int(sys.argv[4]) == rank:
        pid = os.getpid()
        timer = threading.Timer(float(sys.argv[5]), os.kill, [pid, signal.SIGKILL])
        timer.daemon = True
        timer.start()
    choose = random.Random(seed)  # the same choices on every replica
    wrong = error = None
    done = 0
    try:
        for step in range(calls):
            length = int(largest ** choose.random()) if step else largest
            result = zcoll.allreduce(value_of(rank, step, length))
            if not is_right(result, size, step, length):
                wrong = f"call {step} of {length} bytes"
                break
            done += 1
    except zcoll.ReplicaLostError as lost:
        error = lost.rank
    zcoll.teardown()
    left = descriptors() - before
    report(rank, {"done": done, "wrong": wrong, "lost": error, "left": left})


if __name__ == "__main__":
    main()

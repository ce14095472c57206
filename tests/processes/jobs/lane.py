"""Calls of random sizes, all results checked; one replica may kill itself meanwhile.

Arguments: the number of calls, the smallest and the largest size in bytes, a seed; and
if a replica dies: its rank, and the seconds from the first result until then. With
TEST_ROOM, each process gets so many bytes of shared memory, and then no more.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import sys
import threading
from typing import Any

import numpy as np
from holding import descriptors, lanes
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


def limit_room(most: int) -> None:
    """Answer as a system does that has no more memory for files."""
    reserve, left = os.posix_fallocate, most

    def posix_fallocate(descriptor: int, start: int, size: int) -> None:
        nonlocal left
        if size > left:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        left -= size
        reserve(descriptor, start, size)

    os.posix_fallocate = posix_fallocate


def die_later(seconds: float) -> None:
    timer = threading.Timer(seconds, os.kill, [os.getpid(), signal.SIGKILL])
    timer.daemon = True
    timer.start()


def main() -> None:
    calls, smallest, largest, seed = map(int, sys.argv[1:5])
    if "TEST_ROOM" in os.environ:
        limit_room(int(os.environ["TEST_ROOM"]))
    before = descriptors()
    zcoll.initialize()
    rank, size = zcoll.replica_rank(), zcoll.num_replicas()
    dies = len(sys.argv) > 5 and int(sys.argv[5]) == rank
    choose = random.Random(seed)  # the same choices on every replica
    wrong = error = None
    done = 0
    try:
        for step in range(calls):
            # The largest comes first; then many are small.
            share = choose.random() ** 2 if step else 1.0
            length = int((smallest + 1) ** (1 - share) * (largest + 1) ** share) - 1
            result = zcoll.allreduce(value_of(rank, step, length))
            if not is_right(result, size, step, length):
                wrong = f"call {step} of {length} bytes"
                break
            done += 1
            if dies and done == 1:
                die_later(float(sys.argv[6]))
    except zcoll.ReplicaLostError as lost:
        error = lost.rank
    zcoll.teardown()
    left = descriptors() - before
    found = {"done": done, "wrong": wrong, "lost": error, "left": left}
    report(rank, {**found, "lanes": lanes()})


if __name__ == "__main__":
    main()

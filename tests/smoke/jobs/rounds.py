"""Rounds of calls with checked values, until rank 0 finds a file: the smoke job.

rounds.py STOP_FILE
"""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path

import zcoll

PAUSE = 0.02  # seconds between rounds, as if there was something to compute


def main(stop: Path) -> int:
    """Make rounds until rank 0 sees the file.

    Returns:
        The exit status: 1 after a wrong value.
    """
    with zcoll.connect() as comm:
        rank, size, number, told = comm.replica_rank, comm.num_replicas, 0, False
        print(f"rank {rank} of {size} at {socket.gethostname()}", flush=True)
        while not told:
            number += 1
            total = comm.allreduce(rank + number)
            if total != size * (size - 1) // 2 + size * number:
                print(f"round {number}: {total} is wrong", flush=True)
                return 1
            if number % 20 == 0:
                print(f"round {number}", flush=True)
            told = comm.broadcast(rank == 0 and stop.exists())
            time.sleep(PAUSE)
    print(f"{number} rounds, every value is right", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

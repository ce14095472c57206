"""How much memory an allreduce of large arrays takes at most."""

from __future__ import annotations

import resource
import sys

import numpy as np
from report import report

import zcoll

MEBI = 1 << 20


def peak() -> int:
    """The most memory, in bytes, that this process has had so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main() -> None:
    zcoll.initialize()
    rank, size = zcoll.replica_rank(), zcoll.num_replicas()
    mine = np.full(int(sys.argv[1]) * MEBI // 8, rank, np.float64)
    zcoll.barrier()
    before = peak()
    result = zcoll.allreduce(mine)
    report(rank, [peak() - before, bool((result == sum(range(size))).all())])
    zcoll.teardown()


if __name__ == "__main__":
    main()

"""One epoch with 10, 12 and 7 batches: nobody waits for a batch that is not there.

    zcoll run -n 3 examples/uneven.py

Every replica has its own number of batches. In each step those that have a batch
average its mean over their replicas, weighted by the size of the batch. A replica
that has no more batches leaves the epoch, and the others go on without it. At the
end all meet again for the mean of the whole epoch, which rank 0 compares with that of
one process. The exit status is 0 when both are the same, and 1 when they differ.
"""

from __future__ import annotations

import math
import random
import statistics
import sys

import zcoll
from zcoll import ops

BATCHES = (10, 12, 7)  # of ranks 0, 1 and 2, and again from the start
BATCH_SIZE = 32


def load_batches(rank: int) -> list[list[float]]:
    """Draw the numbers of one replica; its last batch is a short one."""
    numbers = random.Random(rank)  # noqa: S311 - these are no secrets
    count = BATCHES[rank % len(BATCHES)]
    sizes = [BATCH_SIZE] * (count - 1) + [1 + rank]
    return [[numbers.gauss(rank, 1.0) for _ in range(size)] for size in sizes]


def run_epoch(
    comm: zcoll.Communicator, batches: list[list[float]]
) -> ops.Weighted[float]:
    """Go through this replica's batches, together with those that have any.

    Returns:
        The mean of everything that all replicas have seen.
    """
    seen = ops.weighted(0.0, 0)
    epoch = comm.dup()  # what is left at the end of the epoch is not ``comm``
    for step, batch in enumerate(batches, start=1):
        part = ops.weighted(statistics.fmean(batch), len(batch))
        seen = ops.mean(seen, part)
        together = epoch.allreduce(part, ops.mean)
        if epoch.replica_rank == epoch.active_ranks[0]:
            print(
                f"step {step:2}: {len(epoch.active_ranks)} with a batch,"
                f" {together.weight:3g} numbers, mean {together.value:.3f}"
            )
    epoch.leave()
    return comm.allreduce(seen, ops.mean)


def main() -> int:
    """Run the epoch, then compare with the mean of all numbers."""
    with zcoll.connect() as comm:
        rank = comm.replica_rank
        together = run_epoch(comm, load_batches(rank))

        same = True
        if rank == 0:
            ranks = range(comm.num_replicas)
            numbers = [x for r in ranks for batch in load_batches(r) for x in batch]
            alone = statistics.fmean(numbers)
            same = together.weight == len(numbers)
            same = same and math.isclose(together.value, alone, rel_tol=1e-12)
            print(
                f"the mean of {len(numbers)} numbers is {together.value:.6f}, and"
                f" {'the same' if same else f'{alone:.6f}'} for one process"
            )
        return 0 if comm.broadcast(same) else 1


if __name__ == "__main__":
    sys.exit(main())

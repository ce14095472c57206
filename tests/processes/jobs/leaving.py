"""Rank 0 leaves, and its program ends without a word; the others go on meanwhile."""

from __future__ import annotations

from report import report

import zcoll

CALLS = 300


def main() -> None:
    zcoll.initialize()
    rank = zcoll.replica_rank()
    group = zcoll.world().split("others" if rank else None)
    zcoll.barrier()
    zcoll.world().leave()
    if group is None:
        report(rank, "ended")
        return
    total = 0
    for _ in range(CALLS):
        total += group.allreduce(rank)
    group.teardown()
    report(rank, total)
    zcoll.teardown()


if __name__ == "__main__":
    main()

"""Ctrl-C while one waits for the others to come."""

from __future__ import annotations

import sys

from interrupted import seconds_until_interrupted
from report import report

import zcoll

if __name__ == "__main__":
    rank, port = int(sys.argv[1]), int(sys.argv[2])
    seconds = seconds_until_interrupted(
        lambda: zcoll.initialize("127.0.0.1", port, rank, 2)
    )
    # Nothing is left of the attempt.
    zcoll.initialize(replica_rank=0, num_replicas=1)
    report(rank, [seconds, zcoll.allreduce(7)])

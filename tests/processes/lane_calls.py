"""Very many calls of random sizes through shared memory, all results checked.

Run as a program (``tools/lane``) it says what came of it; a test makes fewer calls.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from job import run_job

if TYPE_CHECKING:
    from job import Finished


def call_often(
    results: Path, size: int, calls: int, largest: int, seed: int, timeout: float
) -> Finished:
    """Make calls in a group of processes.

    Args:
        results: Where the replicas leave what they find.
        size: The number of replicas.
        calls: The number of calls.
        largest: Bytes of a replica's part of a call, at most; at least there are none.
        seed: Of the sizes.
        timeout: Seconds for all of it.
    """
    arguments = [str(number) for number in (calls, 0, largest, seed)]
    environment = {"ZCOLL_LANE": "auto"}
    return run_job(
        "lane.py", size, results, *arguments, environment=environment, timeout=timeout
    )


def main() -> None:
    """Read the arguments, run, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=3, help="replicas")
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--largest", type=int, default=8_000_000, help="bytes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds")
    wanted = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        finished = call_often(
            Path(directory),
            *(wanted.size, wanted.calls, wanted.largest, wanted.seed),
            timeout=wanted.limit,
        )
    seconds = time.monotonic() - started
    found = finished.reports
    right = len(found) == wanted.size and all(
        (told["done"], told["left"], told["lanes"]) == (wanted.calls, 0, 0)
        for told in found.values()
    )
    sys.stdout.write(
        f"{wanted.calls} allreduces of {wanted.size} replicas in {seconds:.1f} s: "
        f"{'all results right, and nothing left behind' if right else found}\n"
        f"{finished.errors}"
    )
    sys.exit(finished.code or not right)


if __name__ == "__main__":
    main()

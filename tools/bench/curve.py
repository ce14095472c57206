"""The cost of CURVE: calls of two processes over ipc, bare TCP and CURVE over TCP.

A group never uses TCP without CURVE; here it is made to, so that what encryption
costs can be told from what TCP costs. All ways are measured in turns, in one run.
Run it as ``python3 tools/bench/curve.py``, with zcoll and NumPy installed.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING
from unittest import mock

import numpy as np

import zcoll
from zcoll.security import Secret

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = "the secret of a benchmark on this host"  # noqa: S105 - it protects nothing
SMALL_CALLS = 300  # of one turn
LARGE = 64_000_000  # bytes
WAYS = ("ipc", "bare TCP", "CURVE over TCP")


def _connect(way: str, port: int, rank: int) -> zcoll.Communicator:
    secret = None if way == "ipc" else SECRET
    bare = mock.patch.object(Secret, "keys", return_value=None)
    if way != "bare TCP":
        return zcoll.connect("127.0.0.1", port, rank, 2, secret=secret, timeout=30)
    with bare:
        return zcoll.connect("127.0.0.1", port, rank, 2, secret=secret, timeout=30)


def _small(comm: zcoll.Communicator) -> float:
    """Seconds of one call, on average over a turn."""
    start = time.perf_counter()
    for _ in range(SMALL_CALLS):
        comm.allreduce(1)
    return (time.perf_counter() - start) / SMALL_CALLS


def _large(comm: zcoll.Communicator) -> float:
    value = np.ones(LARGE // 8)
    comm.barrier()
    start = time.perf_counter()
    comm.allreduce(value)
    return time.perf_counter() - start


CALLS: dict[str, Callable[[zcoll.Communicator], float]] = {
    "an int": _small,
    "an array of 64 MB": _large,
}


def _take_part(rank: int, port: int, turns: int) -> dict[str, dict[str, float]]:
    """Make all calls, and give the medians by kind and way, in seconds."""
    comms = {way: _connect(way, port + i, rank) for i, way in enumerate(WAYS)}
    found: dict[str, dict[str, float]] = {}
    for what, call in CALLS.items():
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        for turn in range(turns + 1):
            for way in WAYS:
                taken = call(comms[way])
                if turn:  # the first one warms up
                    times[way].append(taken)
        found[what] = {way: statistics.median(times[way]) for way in WAYS}
    for comm in comms.values():
        comm.teardown()
    return found


def _print(found: dict[str, dict[str, float]]) -> None:
    lines = [
        f"| allreduce of | {' | '.join(WAYS)} | CURVE : ipc | CURVE : bare TCP |",
        "|---" * 6 + "|",
    ]
    for what, times in found.items():
        ipc, bare, curve = (times[way] for way in WAYS)
        cells = [f"{times[way] * 1000:.3g} ms" for way in WAYS]
        cells += [f"{curve / ipc:.2f}", f"{curve / bare:.2f}"]
        lines.append(f"| {what} | {' | '.join(cells)} |")
    sys.stdout.write("\n".join(lines) + "\n")


def main() -> None:
    """Measure in two processes, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--port", type=int, default=24_310, help="and the next two")
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        _take_part(options.rank, options.port, options.turns)
        return
    same = ["--turns", str(options.turns), "--port", str(options.port)]
    other = subprocess.Popen([sys.executable, __file__, "--rank", "1", *same])
    try:
        found = _take_part(0, options.port, options.turns)
        other.wait(60)
    finally:
        other.kill()
    _print(found)


if __name__ == "__main__":
    main()

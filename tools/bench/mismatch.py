"""What it costs that every call is checked against those of the other replicas.

The check is always on: each call carries its line of user code, and rank 0 compares
operation and root, which costs nothing that can be measured. Here the line is left
out, in turns with calls as they are, in one run.
Run it as ``python3 tools/bench/mismatch.py``, with zcoll installed.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING
from unittest import mock

import zcoll
from zcoll import communicator

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS = 500  # of one turn


def _turn(comm: zcoll.Communicator) -> float:
    """Seconds of one allreduce of an int, on average over a turn."""
    comm.barrier()
    start = time.perf_counter()
    for _ in range(CALLS):
        comm.allreduce(1)
    return (time.perf_counter() - start) / CALLS


def _unchecked() -> contextlib.AbstractContextManager[object]:
    return mock.patch.object(communicator, "call_site", return_value="")


def _take_part(rank: int, port: int, turns: int) -> tuple[float, float]:
    """Seconds of a call as it is, and without the line of user code: medians."""
    ways: dict[str, Callable[[], contextlib.AbstractContextManager[object]]] = {
        "checked": contextlib.nullcontext,
        "unchecked": _unchecked,
    }
    times: dict[str, list[float]] = {way: [] for way in ways}
    with zcoll.connect("127.0.0.1", port, rank, 2, timeout=30) as comm:
        for turn in range(turns + 1):
            for way, entered in ways.items():
                with entered():
                    taken = _turn(comm)
                if turn:  # the first one warms up
                    times[way].append(taken)
    return statistics.median(times["checked"]), statistics.median(times["unchecked"])


def main() -> None:
    """Measure in two processes, and print the medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--port", type=int, default=24_320)
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        _take_part(options.rank, options.port, options.turns)
        return
    same = ["--turns", str(options.turns), "--port", str(options.port)]
    other = subprocess.Popen([sys.executable, __file__, "--rank", "1", *same])
    try:
        checked, unchecked = _take_part(0, options.port, options.turns)
        other.wait(60)
    finally:
        other.kill()
    sys.stdout.write(
        f"allreduce of an int, 2 replicas, ipc: {checked * 1e6:.0f} us checked, "
        f"{unchecked * 1e6:.0f} us without, ratio {checked / unchecked:.3f}\n"
    )


if __name__ == "__main__":
    main()

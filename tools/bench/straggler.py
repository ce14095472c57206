"""What it costs to wait for another replica: the share of a processor.

Two replicas let each other wait in turn, with shared memory and without; both groups
run at a time. Who waits should need less than 2 %, and so should who sleeps in the
user's code meanwhile.
Run it as ``python3 tools/bench/straggler.py``, with zcoll installed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import zcoll

WARM = 1.0  # seconds of calls before, in which the two agree on a lane
_MAPS = Path("/proc/self/maps")


def _take_part(rank: int, port: int, seconds: float) -> dict[str, float | bool]:
    """Be the one that waits, and the one that is waited for; the shares in percent."""
    found: dict[str, float | bool] = {}
    with zcoll.connect("127.0.0.1", port, rank, 2, timeout=30) as comm:
        began = time.monotonic()
        while comm.broadcast(time.monotonic() - began) < WARM:
            pass
        found["shared"] = _MAPS.exists() and "/memfd:zcoll" in _MAPS.read_text()
        for straggler in (0, 1):
            comm.barrier()
            began, cpu = time.monotonic(), time.process_time()
            if rank == straggler:
                time.sleep(seconds)
            comm.allreduce(1)
            share = (time.process_time() - cpu) / (time.monotonic() - began)
            found["sleeps" if rank == straggler else "waits"] = 100 * share
    return found


def _start(lane: str, rank: int, port: int, seconds: float) -> subprocess.Popen[bytes]:
    words = ["--rank", str(rank), "--port", str(port), "--seconds", str(seconds)]
    return subprocess.Popen(
        [sys.executable, __file__, *words],
        env={**os.environ, "ZCOLL_LANE": lane},
        stdout=subprocess.PIPE,
    )


def main() -> None:
    """Measure in four processes, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--port", type=int, default=24_330)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        found = _take_part(options.rank, options.port, options.seconds)
        sys.stdout.write(json.dumps(found))
        return
    processes = {
        (lane, rank): _start(lane, rank, options.port + place, options.seconds)
        for place, lane in enumerate(("auto", "zmq"))
        for rank in (0, 1)
    }
    try:
        for (lane, rank), process in processes.items():
            output, _ = process.communicate(timeout=60 + 2 * options.seconds)
            found = json.loads(output)
            way = "shared memory" if found["shared"] else "ZeroMQ"
            sys.stdout.write(
                f"ZCOLL_LANE={lane}, replica {rank}, by {way}: "
                f"{found['waits']:.2f} % of a processor while it waits "
                f"{options.seconds:g} s, {found['sleeps']:.2f} % while it sleeps\n"
            )
    finally:
        for process in processes.values():
            process.kill()


if __name__ == "__main__":
    main()

"""Thousands of calls through a proxy that cuts the connections again and again.

Run as a program (``tools/cuts``) it says what came of it; a test does the same.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
import time
from dataclasses import dataclass

import psutil
from faults import acts
from faults.harm import NONE, short_lives
from faults.proxy import Proxy
from faults.puppets import Nursery
from group import SECRET
from ports import tcp_port

import zcoll

LIMIT = 600.0  # seconds
TUNING = {"reconnect_window": 20.0}


@dataclass(frozen=True)
class Found:
    """What came of it.

    Attributes:
        seconds: How long the calls took.
        connections: How many connections reached rank 0.
        cuts: How many of them were cut.
        wrong: How many results were wrong, on any replica.
        slowest: The longest call, in seconds.
        growth: By how many bytes each replica's memory grew after the first tenth.
    """

    seconds: float
    connections: int
    cuts: int
    wrong: int
    slowest: float
    growth: list[int]


def call_often(calls: int) -> tuple[int, float, list[int]]:
    """Make calls whose results show who was counted, and how often.

    Returns:
        The count of wrong results, the longest call in seconds, and this process's
        memory now and then.
    """
    rank, size = zcoll.replica_rank(), zcoll.num_replicas()
    process, memory = psutil.Process(), []
    wrong, slowest = 0, 0.0
    for step in range(calls):
        started = time.monotonic()
        result = zcoll.allreduce([(rank, step, "x" * 2000)])
        slowest = max(slowest, time.monotonic() - started)
        wrong += [row[:2] for row in result] != [(r, step) for r in range(size)]
        if step % (calls // 10) == 0:
            memory.append(process.memory_info().rss)
    return wrong, slowest, memory


def run(nursery: Nursery, size: int, calls: int, mean: float, seed: int) -> Found:
    """Make a group of processes, and let it make calls.

    Args:
        nursery: Where the processes come from.
        size: The number of replicas.
        calls: The number of calls.
        mean: Seconds that a connection lives, on average.
        seed: Of the random times.
    """
    port = tcp_port()
    with contextlib.ExitStack() as stack:
        lives, joined = short_lives(mean, seed), threading.Event()
        proxy = stack.enter_context(
            Proxy(port, lambda number: lives(number) if joined.is_set() else NONE)
        )
        puppets = stack.enter_context(nursery.puppets(size))
        for rank, puppet in enumerate(puppets):
            mine = proxy.port if rank else port
            puppet.tell(acts.join, mine, rank, size, SECRET, TUNING)
            puppet.tell(call_often, calls)
            puppet.tell(acts.teardown)
        for puppet in puppets:
            puppet.expect("ended", LIMIT)
        # Not before: how long joining takes is the machine's matter.
        joined.set()
        proxy.cut()
        started = time.monotonic()
        results = []
        for puppet in puppets:
            results.append(puppet.expect("ended", LIMIT).value)
            puppet.expect("ended", LIMIT)
        seconds = time.monotonic() - started
    wrong, slowest, memory = zip(*results, strict=True)
    growth = [rows[-1] - rows[1] for rows in memory]
    return Found(seconds, proxy.reached, proxy.cuts, sum(wrong), max(slowest), growth)


def main() -> None:
    """Read the arguments, run, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=2, help="replicas")
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--mean", type=float, default=0.05, help="seconds of life")
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    nursery = Nursery()
    try:
        found = run(nursery, wanted.size, wanted.calls, wanted.mean, wanted.seed)
    finally:
        nursery.close()
    kilobytes = ", ".join(f"{grown // 1024}" for grown in found.growth)
    sys.stdout.write(
        f"{wanted.calls} allreduces of {wanted.size} replicas in {found.seconds:.1f} s:"
        f" {found.cuts} of {found.connections} connections cut, {found.wrong} results "
        f"wrong, the slowest call {found.slowest:.2f} s, memory grown by {kilobytes} "
        "KiB\n"
    )
    sys.exit(found.wrong != 0)


if __name__ == "__main__":
    from faults import cuts  # this module, by the name that puppets import it by

    cuts.main()

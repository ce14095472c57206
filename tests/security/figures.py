"""Measures what strangers cost a group: ``tools/security_figures``."""

from __future__ import annotations

import contextlib
import datetime
import os
import pickle
import platform
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import click
import numpy as np
import zmq
from group import LIMIT, SECRET, Replica
from ports import ipc_port, tcp_port
from security.attacks import (
    flood,
    idle_connections,
    is_cut,
    push_frame,
    unfinished_frame,
)
from security.insider import HOME, finish
from security.strangers import STRANGERS, false_rank_0, knock
from security.victim import Victim, stop, victim

import zcoll
from zcoll.codec import encode
from zcoll.wire import MAX_FRAME

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
IDLE = 1500  # connections
HOLDERS = 100  # connections
SECONDS = 6.0  # for which latency is looked at
KNOCKS = 9

Row = tuple[str, str]


def memory() -> Iterator[Row]:
    """What a stranger can make rank 0 hold."""
    with victim(SECRET) as target:
        comm = target.join()
        before = target.memory
        taken = push_frame(target.port, 2 << 30, 256 * MIB)
        growth = target.memory - before
        yield (
            "memory before authentication: a frame of 2 GiB is claimed and sent",
            f"{growth / MIB:.1f} MiB more; cut off after {taken / MIB:.1f} MiB",
        )
        before, start = target.memory, time.monotonic()
        with idle_connections(target.port, IDLE) as held:
            comm.allreduce(1)
            time.sleep(1.0)  # until the last of them is accepted
            growth = target.memory - before
            while not all(is_cut(one) for one in held):
                time.sleep(0.1)
            cut = time.monotonic() - start
        yield (
            f"memory of {IDLE:,} connections that say nothing",
            f"{growth / MIB:.1f} MiB more; all were cut off after {cut:.1f} s",
        )
        before = target.memory
        with contextlib.ExitStack() as stack:
            for _ in range(HOLDERS):
                stack.enter_context(unfinished_frame(target.port, MAX_FRAME - 1))
            comm.allreduce(1)
            time.sleep(1.0)  # until everything is read
            growth = target.memory - before
        yield (
            f"{HOLDERS} connections send the largest frame, but for its last byte",
            f"{growth / MIB:.1f} MiB more, {growth / MIB / HOLDERS:.2f} MiB for each",
        )
        stop(comm)


def refusals() -> Iterator[Row]:
    """How soon a stranger is refused, and a replica knows that it is one."""
    with victim(SECRET) as target:
        comm = target.join()
        for stranger in STRANGERS:
            times = [knock(stranger, target.port, SECRET, []) for _ in range(KNOCKS)]
            yield (
                f"rank 0 refuses: {stranger}",
                f"{statistics.median(times) * 1000:.1f} ms (median of {KNOCKS})",
            )
        stop(comm)
    port = tcp_port()
    with false_rank_0(port, "other secret", []):
        yield "a replica learns: a rank 0 with another secret", _told(port, SECRET)
    port = tcp_port()
    rank_0 = Replica(0, lambda: _connect(port, 0, SECRET))
    yield "a replica learns: rank 0 has a secret, it has none", _told(port, None)
    finish(rank_0, Replica(1, lambda: _connect(port, 1, SECRET)))
    with ipc_port() as port:
        rank_0 = Replica(0, lambda: _connect(port, 0, None))
        yield "a replica learns: it has a secret, rank 0 has none", _told(port, SECRET)
        finish(rank_0, Replica(1, lambda: _connect(port, 1, None)))


def _connect(port: int, rank: int, secret: str | None) -> zcoll.Communicator:
    return zcoll.connect(HOME, port, rank, 2, secret=secret, timeout=LIMIT)


def _told(port: int, secret: str | None) -> str:
    start = time.monotonic()
    try:
        _connect(port, 1, secret)
    except zcoll.AuthenticationError:
        return f"{time.monotonic() - start:.2f} s"
    raise SystemExit("it was let in")


def _latencies(comm: zcoll.Communicator) -> list[float]:
    times, end = [], time.monotonic() + SECONDS
    while (start := time.monotonic()) < end:
        comm.allreduce(1)
        times.append((time.monotonic() - start) * 1000)
    return sorted(times)


def _describe(times: list[float]) -> str:
    median, p99 = statistics.median(times), times[int(len(times) * 0.99)]
    return f"median {median:.2f}, p99 {p99:.2f}, worst {times[-1]:.1f} ms"


def unpickling() -> Iterator[Row]:
    """What the restricted unpickler costs."""
    numbers = list(range(1_000_000))
    for what, value in (
        ("a list of a million ints", numbers),
        ("the same beside a date", [datetime.date(2026, 1, 1), *numbers]),
        ("an array of 64 MB", np.ones(8_000_000)),
    ):
        stream, *buffers = encode(value).parts
        times = []
        for loads in pickle.loads, zcoll.plain_loads:
            start = time.perf_counter()
            loads(stream, buffers=buffers)
            times.append((time.perf_counter() - start) * 1000)
        yield (
            f"unpickling {what}",
            f"pickle.loads {times[0]:.1f} ms, zcoll.plain_loads {times[1]:.1f} ms",
        )


def _flooder(target: Victim) -> subprocess.Popen[str]:
    """A flood out of another process, until it is told to end."""
    return subprocess.Popen(
        [sys.executable, "-m", "security.figures", "--flood", str(target.port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def latency() -> Iterator[Row]:
    """What a flood does to a group's calls."""
    with victim(SECRET) as target:
        comm = target.join()
        _latencies(comm)
        yield "a small allreduce of 2 replicas, quiet", _describe(_latencies(comm))
        with _flooder(target) as attack:
            start = time.monotonic()
            times = _latencies(comm)
            told, _ = attack.communicate("end\n")
            rate = int(told) / (time.monotonic() - start)
        yield f"the same under {rate:,.0f} junk connections/s", _describe(times)
        stop(comm)


def _flood_until_told(port: int) -> None:
    count = 0
    os.set_blocking(0, False)
    while not sys.stdin.readline():
        flood(port, 200, seed=count)
        count += 200
    click.echo(count)


@click.command()
@click.option("--flood", "port", type=int, hidden=True)
def main(port: int | None) -> None:
    """Measure, and print a table for docs/security.md."""
    if port is not None:
        _flood_until_told(port)
        return
    click.echo(
        f"Measured on {os.cpu_count()} cores, {platform.system()}, Python "
        f"{platform.python_version()}, libzmq {zmq.zmq_version()}.\n"
    )
    click.echo("| what | measured |\n|---|---|")
    for part in memory, refusals, latency, unpickling:
        for what, found in part():
            click.echo(f"| {what} | {found} |")


if __name__ == "__main__":
    main()

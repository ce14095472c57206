"""``zcoll ping --group``: a whole group checks itself, from inside."""

from __future__ import annotations

import json
import operator
import os
import socket
import statistics
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from zcoll.communicator import connect
from zcoll.errors import ZcollError
from zcoll.launchers.environment import read_settings, read_target
from zcoll.probe import Prober, Unreachable, locate

if TYPE_CHECKING:
    from zcoll.communicator import Communicator

FAILED = 3
_HEADINGS = (
    "rank",
    "host",
    "pid",
    "ping ms",
    "barrier ms",
    "allreduce ms",
    "broadcast ms",
)


@dataclass(frozen=True, slots=True)
class Row:
    """What one replica has measured: medians, in milliseconds.

    Attributes:
        rank: Its rank.
        host: Its host.
        pid: Its process.
        ping: The round trip to rank 0; None on rank 0.
        barrier: A barrier of the whole group.
        allreduce: An allreduce of an int.
        broadcast: A broadcast of a short text.
    """

    rank: int
    host: str
    pid: int
    ping: float | None
    barrier: float
    allreduce: float
    broadcast: float


class WrongValueError(ZcollError):
    """A call gave another value than it must."""


def check_group(rounds: int, timeout: float, *, as_json: bool) -> int:
    """Join the group, make rounds of checked calls, and print a table at rank 0.

    Args:
        rounds: How many rounds.
        timeout: Seconds for each call.
        as_json: Whether rank 0 prints JSON.

    Returns:
        The exit code.
    """
    try:
        with connect() as group:
            row = _measure(group, rounds, timeout)
            rows = group.allreduce([row], operator.add, timeout=timeout)
            if group.replica_rank == 0:
                _print(rows, rounds, as_json=as_json)
    except (ZcollError, Unreachable) as error:
        click.echo(f"zcoll ping --group: {error}", err=True)
        return FAILED
    return 0


def _measure(group: Communicator, rounds: int, timeout: float) -> Row:
    barriers, allreduces, broadcasts = [], [], []
    total = group.num_replicas * (group.num_replicas - 1) // 2
    for number in range(rounds):
        root = number % group.num_replicas
        start = time.perf_counter()
        group.barrier(timeout=timeout)
        after_barrier = time.perf_counter()
        ranks = group.allreduce(group.replica_rank, timeout=timeout)
        after_allreduce = time.perf_counter()
        text = group.broadcast(f"from {group.replica_rank}", root=root, timeout=timeout)
        after_broadcast = time.perf_counter()
        _expect("allreduce", ranks, total)
        _expect("broadcast", text, f"from {root}")
        barriers.append(after_barrier - start)
        allreduces.append(after_allreduce - after_barrier)
        broadcasts.append(after_broadcast - after_allreduce)
    return Row(
        rank=group.replica_rank,
        host=socket.gethostname(),
        pid=os.getpid(),
        ping=_ping(group, rounds, timeout),
        barrier=_median(barriers),
        allreduce=_median(allreduces),
        broadcast=_median(broadcasts),
    )


def _expect(operation: str, value: object, expected: object) -> None:
    if value != expected:
        raise WrongValueError(f"{operation} gave {value!r} instead of {expected!r}")


def _ping(group: Communicator, rounds: int, timeout: float) -> float | None:
    """The round trip to rank 0, without the other replicas in it."""
    if group.replica_rank == 0:
        return None
    settings = read_settings()
    target = read_target(settings.master_addr, settings.master_port)
    with Prober(target, locate(target)) as prober:
        return _median([prober.ask(timeout).elapsed for _ in range(rounds)])


def _median(seconds: list[float]) -> float:
    return round(statistics.median(seconds) * 1000, 3)


def _print(rows: list[Row], rounds: int, *, as_json: bool) -> None:
    if as_json:
        click.echo(
            json.dumps({"rounds": rounds, "replicas": [asdict(r) for r in rows]})
        )
        return
    table = [_HEADINGS] + [
        (
            str(row.rank),
            row.host,
            str(row.pid),
            "-" if row.ping is None else f"{row.ping:.2f}",
            f"{row.barrier:.2f}",
            f"{row.allreduce:.2f}",
            f"{row.broadcast:.2f}",
        )
        for row in rows
    ]
    widths = [
        max(len(line[column]) for line in table) for column in range(len(_HEADINGS))
    ]
    for line in table:
        cells = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())
    plural = "s" if rounds != 1 else ""
    click.echo(
        f"{len(rows)} replicas, {rounds} round{plural} of checked calls: all right"
    )

"""``zcoll ping --group``: a whole group checks itself, from inside."""

from __future__ import annotations

import contextlib
import json
import operator
import os
import socket
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple

import click

from zcoll.cli.ping_report import COMPLETE, INCOMPLETE, UNREACHABLE
from zcoll.collective import connect
from zcoll.errors import (
    CollectiveTimeoutError,
    ConfigurationError,
    GroupError,
    RendezvousError,
    RendezvousTimeoutError,
    SecurityError,
    ZcollError,
)
from zcoll.launchers.environment import read_settings, read_target
from zcoll.probe import Prober, Unreachable, locate
from zcoll.wire import AUTO_RANK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zcoll.communicator import Communicator


@dataclass(frozen=True, slots=True)
class Plan:
    """What is checked.

    Attributes:
        rounds: How many rounds of calls.
        timeout: Seconds for each call.
        size: Bytes of the broadcast value at least.
    """

    rounds: int
    timeout: float
    size: int


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
        broadcast: A broadcast of a short text, from each rank in turn.
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


def check_group(plan: Plan, gathering: float | None, *, as_json: bool) -> int:
    """Join the group, make rounds of checked calls, and print a table at rank 0.

    Args:
        plan: What is checked.
        gathering: Seconds for the group to come together; None for the default.
        as_json: Whether rank 0 prints JSON.

    Returns:
        The exit code.

    Raises:
        ConfigurationError: The environment describes no group.
    """
    rank = read_settings().rank
    try:
        rows = _check(plan, gathering)
    except ConfigurationError:
        raise
    except (ZcollError, Unreachable) as error:
        if as_json and rank == 0:
            click.echo(json.dumps(_failure(error)))
        who = "this replica" if rank == AUTO_RANK else f"replica {rank}"
        click.echo(f"zcoll ping --group: {who}: {error}", err=True)
        return _exit_code(error)
    if rank == 0 and as_json:
        replicas = [asdict(row) for row in rows]
        click.echo(
            json.dumps({"complete": True, "rounds": plan.rounds, "replicas": replicas})
        )
    elif rank == 0:
        for line in _table(rows, plan.rounds):
            click.echo(line)
    return COMPLETE


def _check(plan: Plan, gathering: float | None) -> list[Row]:
    group = connect(timeout=gathering)
    try:
        row = _measure(group, plan)
        rows = group.allreduce([row], operator.add, timeout=plan.timeout)
        group.teardown(timeout=plan.timeout)
    except BaseException as error:
        group.close(f"zcoll ping --group: {error}")
        raise
    return rows


def _measure(group: Communicator, plan: Plan) -> Row:
    with contextlib.ExitStack() as held:
        prober = None
        if group.replica_rank != 0:
            settings = read_settings()
            target = read_target(settings.master_addr, settings.master_port)
            place = locate(target, plan.timeout)
            prober = held.enter_context(Prober(target, place))
        times = [_round(group, prober, plan, number) for number in range(plan.rounds)]
    return Row(
        rank=group.replica_rank,
        host=socket.gethostname(),
        pid=os.getpid(),
        ping=None if prober is None else _median([each.ping for each in times]),
        barrier=_median([each.barrier for each in times]),
        allreduce=_median([each.allreduce for each in times]),
        broadcast=_median([each.broadcast for each in times]),
    )


class _Times(NamedTuple):
    """Seconds that the steps of one round took."""

    ping: float
    barrier: float
    allreduce: float
    broadcast: float


def _round(
    group: Communicator, prober: Prober | None, plan: Plan, number: int
) -> _Times:
    rank, size = group.replica_rank, group.num_replicas
    root = number % size
    ping = 0.0 if prober is None else prober.ask(plan.timeout).elapsed
    group.barrier(timeout=2 * plan.timeout)  # all have their answer: start together
    start = time.perf_counter()
    group.barrier(timeout=plan.timeout)
    after_barrier = time.perf_counter()
    total = group.allreduce(rank + number, timeout=plan.timeout)
    after_allreduce = time.perf_counter()
    text = group.broadcast(_text(rank, number, plan), root=root, timeout=plan.timeout)
    after_broadcast = time.perf_counter()
    _expect("allreduce", total, size * (size - 1) // 2 + size * number)
    _expect("broadcast", text, _text(root, number, plan))
    return _Times(
        ping,
        after_barrier - start,
        after_allreduce - after_barrier,
        after_broadcast - after_allreduce,
    )


def _text(rank: int, number: int, plan: Plan) -> str:
    return f"round {number}, from {rank}".ljust(plan.size, ".")


def _expect(operation: str, value: object, expected: object) -> None:
    if value != expected:
        raise WrongValueError(
            f"{operation} gave {value!r:.200} instead of {expected!r:.200}"
        )


def _median(seconds: Sequence[float]) -> float:
    return round(statistics.median(seconds) * 1000, 3)


# --- what comes of it -----------------------------------------------------


def _exit_code(error: ZcollError | Unreachable) -> int:
    """Whether rank 0 was reached, and only the rest of the group is not in order."""
    if isinstance(error, RendezvousTimeoutError | CollectiveTimeoutError):
        return UNREACHABLE if 0 in error.missing else INCOMPLETE
    if isinstance(error, GroupError):
        return UNREACHABLE if error.rank == 0 else INCOMPLETE
    if isinstance(error, Unreachable | RendezvousError | SecurityError):
        return UNREACHABLE
    return INCOMPLETE


def _failure(error: ZcollError | Unreachable) -> dict[str, object]:
    missing = getattr(error, "missing", [])
    return {"complete": False, "error": str(error), "missing": missing}


def _table(rows: Sequence[Row], rounds: int) -> Iterator[str]:
    cells = [("rank", "pid", "ping ms", "barrier ms", "allreduce ms", "broadcast ms")]
    cells += [
        (
            str(row.rank),
            str(row.pid),
            "-" if row.ping is None else f"{row.ping:.2f}",
            f"{row.barrier:.2f}",
            f"{row.allreduce:.2f}",
            f"{row.broadcast:.2f}",
        )
        for row in rows
    ]
    hosts = ["host", *(row.host for row in rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    host_width = max(len(host) for host in hosts)
    for host, line in zip(hosts, cells, strict=True):
        rank, *rest = (
            cell.rjust(width) for cell, width in zip(line, widths, strict=True)
        )
        yield "  ".join((rank, host.ljust(host_width), *rest))
    yield (
        f"{len(rows)} replica{'s' if len(rows) != 1 else ''}, "
        f"{rounds} round{'s' if rounds != 1 else ''}: every value is right; "
        "times are each replica's medians"
    )

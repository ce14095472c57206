"""``zcoll ping``: is a group reachable and complete?"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import click

from zcoll.cli.group_check import check_group
from zcoll.errors import ConfigurationError, SecurityError, name_ranks
from zcoll.launchers.environment import read_target
from zcoll.probe import Answer, Prober, Reason, Unreachable, locate

COMPLETE, INCOMPLETE, UNREACHABLE = 0, 1, 3  # exit codes; 2 is click's wrong usage
_RETRY = 0.25  # seconds between tries while --wait lasts


@dataclass
class Summary:
    """What the probes of one run have found.

    Attributes:
        sent: How many were sent.
        times: The answered ones' times in seconds.
        status: What rank 0 said last, or None.
        failure: Why the last one was not answered, or None.
    """

    sent: int = 0
    times: list[float] = field(default_factory=list)
    status: dict[str, Any] | None = None
    failure: Unreachable | None = None

    @property
    def complete(self) -> bool:
        """Whether rank 0 answered and every replica is there."""
        return bool(self.status and self.status["complete"] and not self.missing)

    @property
    def missing(self) -> list[int]:
        """The ranks that are not there."""
        if self.status is None:
            return []
        there = {replica["rank"] for replica in self.status["replicas"]}
        return [r for r in range(self.status["num_replicas"]) if r not in there]

    def exit_code(self, *, reachable: bool) -> int:
        """The command's exit code."""
        if self.status is None:
            return UNREACHABLE
        return COMPLETE if reachable or self.complete else INCOMPLETE

    def milliseconds(self) -> dict[str, float]:
        """Smallest, median, 99th percentile and largest time."""
        times = sorted(t * 1000 for t in self.times)
        if not times:
            return {}
        high = times[max(0, math.ceil(len(times) * 0.99) - 1)]
        middle = statistics.median(times)
        values = {"min": times[0], "median": middle, "p99": high, "max": times[-1]}
        return {name: round(value, 3) for name, value in values.items()}


@click.command()
@click.argument("address", metavar="[HOST:PORT]", required=False)
@click.option(
    "--count",
    "-c",
    default=3,
    show_default=True,
    type=click.IntRange(1),
    help="Probes to send.",
)
@click.option(
    "--interval",
    "-i",
    default=0.2,
    show_default=True,
    type=click.FloatRange(0),
    help="Seconds between probes.",
)
@click.option(
    "--timeout",
    "-W",
    default=2.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="Seconds for each probe.",
)
@click.option(
    "--size",
    "-s",
    default=0,
    show_default=True,
    type=click.IntRange(0, 1024 * 1024),
    help="Bytes that a probe carries each way.",
)
@click.option(
    "--wait",
    "-w",
    metavar="SECONDS",
    type=click.FloatRange(0),
    help="Retry for so long, until rank 0 answers and every replica is there.",
)
@click.option(
    "--reachable", is_flag=True, help="Be content when rank 0 answers, complete or not."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
@click.option(
    "--group",
    is_flag=True,
    help="Join the group instead of asking it: start this on every replica, "
    "with the job's environment. Makes rounds of calls with checked values; "
    "rank 0 prints the round-trip times of all.",
)
def ping(
    address: str | None,
    count: int,
    interval: float,
    timeout: float,
    size: int,
    wait: float | None,
    reachable: bool,
    as_json: bool,
    group: bool,
) -> None:
    """Ask rank 0 of a running or gathering group whether it is there.

    The group is at HOST:PORT, or where ZCOLL_MASTER_ADDR and ZCOLL_MASTER_PORT
    say; its secret comes from ZCOLL_SECRET or ZCOLL_SECRET_FILE. Asking does not
    join the group, and does not disturb it.

    \b
    Exit code: 0  rank 0 answers and every replica is there
               1  rank 0 answers, replicas are missing
               2  wrong usage
               3  rank 0 does not answer; the last line says why
    """  # noqa: D301 - \b is click's mark for a paragraph kept as it is
    if group:
        if address is not None:
            raise click.UsageError("--group takes the address from the environment")
        sys.exit(check_group(count, timeout, as_json=as_json))
    try:
        summary = _probe_all(
            address, count, interval, timeout, size, wait, reachable, quiet=as_json
        )
    except (ConfigurationError, SecurityError) as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json.dumps(_as_fields(summary)))
    else:
        _print_summary(summary)
    sys.exit(summary.exit_code(reachable=reachable))


def _probe_all(
    address: str | None,
    count: int,
    interval: float,
    timeout: float,
    size: int,
    wait: float | None,
    reachable: bool,
    *,
    quiet: bool,
) -> Summary:
    target = read_target(*_split(address))
    deadline = time.monotonic() + (wait or 0.0)
    summary = Summary()
    while True:
        try:
            place = locate(target)
            with Prober(target, place) as prober:
                if wait is not None and not _ready(prober, summary, timeout, reachable):
                    raise Unreachable(Reason.NO_ANSWER, "replicas are missing")
                if not quiet:
                    click.echo(f"PING {place}: {size} bytes")
                _send(prober, summary, count, interval, timeout, size, quiet=quiet)
            return summary
        except Unreachable as error:
            summary.failure = error
            summary.sent = summary.sent or 1
            if time.monotonic() >= deadline:
                return summary
        time.sleep(min(_RETRY, max(0.0, deadline - time.monotonic())))


def _ready(prober: Prober, summary: Summary, timeout: float, reachable: bool) -> bool:
    """Whether what --wait waits for has come."""
    summary.status = prober.ask(timeout).status
    return reachable or summary.complete


def _send(
    prober: Prober,
    summary: Summary,
    count: int,
    interval: float,
    timeout: float,
    size: int,
    *,
    quiet: bool,
) -> None:
    summary.sent = 0
    for seq in range(1, count + 1):
        if seq > 1:
            time.sleep(interval)
        summary.sent += 1
        try:
            answer = prober.ask(timeout, size)
        except Unreachable as error:
            summary.failure = error
            if not summary.times:
                return  # the reason will not change between two probes
            if not quiet:
                click.echo(f"seq={seq} {error.text}")
            continue
        summary.times.append(answer.elapsed)
        summary.status, summary.failure = answer.status, None
        if not quiet:
            click.echo(_line(seq, answer))


def _line(seq: int, answer: Answer) -> str:
    first = answer.status["replicas"][0]
    who = f"replica 0 ({first['host']}, pid {first['pid']})"
    return f"answer from {who}: seq={seq} time={answer.elapsed * 1000:.2f} ms"


def _split(address: str | None) -> tuple[str | None, int | None]:
    """Take HOST:PORT apart; brackets may stand around an IPv6 address."""
    if address is None:
        return None, None
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or not host or (":" in host and host[0] != "["):
        raise click.UsageError(
            f"{address!r} is not HOST:PORT; write an IPv6 address as [::1]:29500"
        )
    return host, int(port)


def _print_summary(summary: Summary) -> None:
    click.echo(f"{summary.sent} sent, {len(summary.times)} answered", nl=False)
    times = summary.milliseconds()
    if times:
        values = "/".join(f"{value:.2f}" for value in times.values())
        click.echo(f", min/median/p99/max = {values} ms", nl=False)
    click.echo()
    status = summary.status
    if status is not None:
        total, missing = status["num_replicas"], summary.missing
        click.echo(
            f"zcoll {status['package']}, {total - len(missing)} of {total} replicas"
        )
        for replica in status["replicas"]:
            where = f"{replica['host']}, pid {replica['pid']}"
            click.echo(f"  present: replica {replica['rank']} ({where})")
        if missing:
            click.echo(f"  missing: {name_ranks(missing)}")
        click.echo(f"  {_call_in_progress(status)}")
    if summary.failure is not None and summary.status is None:
        click.echo(f"not reachable: {summary.failure.text}", err=True)


def _call_in_progress(status: dict[str, Any]) -> str:
    call = status["call"]
    if call is None:
        return f"no call in progress; {status['decided']} done"
    text = f"call in progress: {call['operation']}, call {call['seq']}"
    if call["missing"]:
        text += f"; {name_ranks(call['missing'])} missing ({call['text']})"
    return text


def _as_fields(summary: Summary) -> dict[str, Any]:
    failure = summary.failure
    return {
        "reachable": summary.status is not None,
        "complete": summary.complete,
        "reason": None if summary.status or not failure else failure.reason.value,
        "detail": None if summary.status or not failure else failure.text,
        "sent": summary.sent,
        "answered": len(summary.times),
        "milliseconds": summary.milliseconds(),
        "missing": summary.missing,
        "group": summary.status,
    }

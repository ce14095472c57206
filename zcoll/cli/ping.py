"""``zcoll ping``: is a group reachable and complete?"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from zcoll.cli.group_check import Plan, check_group
from zcoll.cli.ping_report import Summary, describe_answer, describe_count
from zcoll.errors import ConfigurationError
from zcoll.launchers.environment import read_target
from zcoll.probe import Prober, Unreachable, locate

if TYPE_CHECKING:
    from zcoll.launchers.settings import Target

_INTERRUPTED = 130  # as a shell says it of a program that Ctrl-C has ended
_RETRY = 0.25  # seconds between tries while --wait lasts
_SHORTEST = 0.1  # seconds that the last try of --wait may take at least


@dataclass(frozen=True, slots=True)
class Options:
    """What the command was told; the options' help says what each is.

    Attributes:
        count: Probes to send, or rounds.
        interval: Seconds between probes.
        timeout: Seconds for a probe, or for a call.
        size: Bytes that a probe, or a broadcast, carries.
        wait: Seconds to wait for the group, or None.
        reachable: Whether it is enough that rank 0 answers.
        as_json: Whether to print JSON.
    """

    count: int
    interval: float
    timeout: float
    size: int
    wait: float | None
    reachable: bool
    as_json: bool


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
    metavar="SECONDS",
    default=0.2,
    show_default=True,
    type=click.FloatRange(0),
    help="Time between probes.",
)
@click.option(
    "--timeout",
    "-W",
    metavar="SECONDS",
    default=2.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="Limit for each probe.",
)
@click.option(
    "--size",
    "-s",
    metavar="BYTES",
    default=0,
    show_default=True,
    type=click.IntRange(0, 1024 * 1024),
    help="What a probe carries each way, up to 1 MiB.",
)
@click.option(
    "--wait",
    "-w",
    metavar="SECONDS",
    type=click.FloatRange(0),
    help="First retry for so long, until rank 0 answers and every replica is there.",
)
@click.option(
    "--reachable",
    is_flag=True,
    help="Be content as soon as rank 0 answers, complete or not: for health checks "
    "and start-up order.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
@click.option(
    "--group",
    is_flag=True,
    help="Join the group instead of asking it: start this on every replica, with the "
    "job's environment. Makes COUNT rounds of calls with checked values; rank 0 "
    "prints every replica's round-trip times. Here --timeout is the limit for each "
    "call, and --wait for the group to come together (300 s if not given).",
)
@click.pass_context
def ping(
    ctx: click.Context, /, address: str | None, group: bool, **options: Any
) -> None:
    """Ask rank 0 of a running or gathering group how the group is.

    The group is at HOST:PORT, or where ZCOLL_MASTER_ADDR and ZCOLL_MASTER_PORT
    say; its secret comes from ZCOLL_SECRET or ZCOLL_SECRET_FILE. Asking does not
    join the group, and does not disturb it.

    \b
    Exit code: 0  rank 0 answers and every replica is there
               1  rank 0 answers, replicas are missing (0 with --reachable)
               2  wrong usage
               3  rank 0 does not answer; the last line says why

    \b
        zcoll ping 127.0.0.1:29500
        zcoll ping --wait 60 --reachable node1:29500
        zcoll run -n 4 -m zcoll ping --group
    """  # noqa: D301 - \b is click's mark for a paragraph kept as it is
    chosen = Options(**options)
    try:
        if group:
            _refuse_with_group(ctx)
            plan = Plan(chosen.count, chosen.timeout, chosen.size)
            sys.exit(check_group(plan, chosen.wait, as_json=chosen.as_json))
        sys.exit(_ping(read_target(*_split(address)), chosen))
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from error


def _refuse_with_group(ctx: click.Context) -> None:
    for name in ("address", "interval", "reachable"):
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            what = "HOST:PORT" if name == "address" else f"--{name}"
            raise click.UsageError(
                f"--group does not take {what}: it joins the group that the "
                "environment describes, and makes its calls one after the other"
            )


def _split(address: str | None) -> tuple[str | None, int | None]:
    """Take HOST:PORT apart; brackets may stand around an IPv6 address."""
    if address is None:
        return None, None
    host, _, port = address.rpartition(":")
    if not host or (":" in host and host[0] != "["):
        raise click.UsageError(
            f"{address!r} is not HOST:PORT; write an IPv6 address as [::1]:29500"
        )
    if not (port.isascii() and port.isdecimal() and 1 <= int(port) <= 65535):
        raise click.UsageError(f"{port!r} in {address!r} is no port from 1 to 65535")
    return host, int(port)


def _ping(target: Target, options: Options) -> int:
    summary = Summary()
    interrupted = False
    try:
        _probe(target, options, summary, Screen(quiet=options.as_json))
    except KeyboardInterrupt:
        interrupted = True
    if options.as_json:
        click.echo(json.dumps(summary.fields()))
    else:
        for line in summary.lines():
            click.echo(line)
        if summary.failure is not None:
            click.echo(f"not reachable: {summary.failure.text}", err=True)
    return (
        _INTERRUPTED if interrupted else summary.exit_code(reachable=options.reachable)
    )


class Screen:
    """Where people see what goes on.

    Args:
        quiet: Say nothing: a program reads the output.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._waiting = ""

    def show(self, line: str) -> None:
        """Show what a probe has found."""
        if not self._quiet:
            click.echo(line)

    def wait_for(self, what: str) -> None:
        """Show what is waited for, when that changes."""
        if not self._quiet and what != self._waiting:
            click.echo(f"waiting: {what}", err=True)
        self._waiting = what


def _probe(target: Target, options: Options, summary: Summary, screen: Screen) -> None:
    """Wait if told so, and send the probes."""
    deadline = time.monotonic() + (options.wait or 0.0)
    while True:
        limit = options.timeout
        if options.wait is not None:
            limit = min(limit, max(deadline - time.monotonic(), _SHORTEST))
        try:
            place = locate(target, limit)
            with Prober(target, place) as prober:
                if options.wait is not None:
                    _await(prober, options, deadline, screen)
                screen.show(f"PING {place}: {options.size} bytes")
                _send(prober, options, summary, screen)
            return
        except Unreachable as error:
            if time.monotonic() >= deadline:
                summary.sent = 1
                summary.unanswered(error)
                return
            screen.wait_for(error.text)
        time.sleep(min(_RETRY, max(0.0, deadline - time.monotonic())))


def _await(prober: Prober, options: Options, deadline: float, screen: Screen) -> None:
    """Ask until what --wait waits for has come, or its time is over."""
    while True:
        left = deadline - time.monotonic()
        status = prober.ask(min(options.timeout, max(left, _SHORTEST))).status
        left = deadline - time.monotonic()
        if options.reachable or status.whole or left <= 0:
            return
        screen.wait_for(describe_count(status))
        time.sleep(min(_RETRY, left))


def _send(prober: Prober, options: Options, summary: Summary, screen: Screen) -> None:
    for number in range(1, options.count + 1):
        if number > 1:
            time.sleep(options.interval)
        summary.sent += 1
        try:
            answer = prober.ask(options.timeout, options.size)
        except Unreachable as error:
            summary.unanswered(error)
            if not summary.times:
                return  # the reason will not change between two probes
            screen.show(f"no answer: seq={number}")
        else:
            summary.answered(answer)
            screen.show(describe_answer(number, answer))

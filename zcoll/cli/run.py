"""``zcoll run``: start the replicas of a job on this machine."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from zcoll.cli.job import Job, fill_standard_descriptors, run_job
from zcoll.cli.run_options import AUTO, read_first_rank, read_total
from zcoll.errors import ZcollError

if TYPE_CHECKING:
    from collections.abc import Mapping

ADDRESS, PORT = "ZCOLL_MASTER_ADDR", "ZCOLL_MASTER_PORT"
SECRET, SECRET_FILE = "ZCOLL_SECRET", "ZCOLL_SECRET_FILE"
LISTEN_FD = "ZCOLL_LISTEN_FD"
REPORT = "ZCOLL_RUN_REPORT"

_LOOPBACK = "127.0.0.1"
_BACKLOG = 1024


@dataclass(frozen=True)
class MeetingPoint:
    """Where the group meets: variables for all, and rank 0's socket."""

    variables: dict[str, str] = field(repr=False)  # the secret may be among them
    listener: socket.socket | None


@click.command(
    "run",
    context_settings={"allow_interspersed_args": False},
    options_metavar="-n N [OPTIONS] [--]",
    epilog="Everything after SCRIPT belongs to SCRIPT: put zcoll's options before it.",
)
@click.option(
    "-n",
    "count",
    type=click.IntRange(min=1),
    required=True,
    metavar="N",
    help="How many replicas to start here.",
)
@click.option(
    "-m",
    "as_module",
    is_flag=True,
    help="SCRIPT is the name of a module, as in 'python -m'.",
)
@click.option(
    "--tcp",
    is_flag=True,
    help="Use TCP on the loopback interface, encrypted with a secret made for this"
    " job, instead of a private socket file. Implied by ZCOLL_SECRET.",
)
@click.option(
    "--num-replicas",
    "total",
    type=read_total,
    metavar="TOTAL",
    help="Size of the whole group, of which N run here; it may be a sum, as in 1+4."
    " Needs ZCOLL_MASTER_ADDR and ZCOLL_MASTER_PORT in the environment."
    "  [default: N]",
)
@click.option(
    "--first-rank",
    type=read_first_rank,
    metavar="R",
    help="The ranks here are R to R+N-1; with 'auto', rank 0, which runs elsewhere,"
    " gives ranks to the replicas here.  [default: 0]",
)
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="When a replica has failed and the others were asked to end: how long until"
    " they are killed.",
)
@click.argument(
    "command",
    nargs=-1,
    required=True,
    type=click.UNPROCESSED,
    metavar="SCRIPT [ARGS]...",
)
def run(
    *,
    count: int,
    as_module: bool,
    tcp: bool,
    total: int | None,
    first_rank: int | Literal["auto"] | None,
    grace: float,
    command: tuple[str, ...],
) -> None:
    """Start N replicas of a Python SCRIPT on this machine.

    Each runs in a process of its own and learns through ZCOLL_* variables who it
    is and where the group meets, so that zcoll.initialize() needs no arguments.

    \b
        zcoll run -n 4 train.py --epochs 3
        zcoll run -n 4 -m package.train --epochs 3

    What the replicas print appears here with the rank in front of each line.
    Replica 0 has this command's standard input, the others have none. Ctrl-C and
    SIGTERM are passed on; a second Ctrl-C kills. If a replica fails, the others
    are ended and this command exits with its code (128 + N for signal N).

    A group on two hosts, with four replicas on each; both have the same
    ZCOLL_SECRET, ZCOLL_MASTER_ADDR (the first host) and ZCOLL_MASTER_PORT:

    \b
        zcoll run -n 4 --num-replicas 8 --first-rank 0 train.py
        zcoll run -n 4 --num-replicas 8 --first-rank 4 train.py
    """  # noqa: D301 - click knows the character, not its escape
    ranks = _ranks(count, total, first_rank)
    environment = _own_environment()
    is_part = count < (total or count)
    _check(environment, is_part=is_part, tcp=tcp)
    argv = [sys.executable, *(["-m"] if as_module else []), *command]
    if not as_module and not Path(command[0]).exists():
        raise click.UsageError(f"there is no file {command[0]!r} to run")
    fill_standard_descriptors()
    try:
        with ExitStack() as stack:
            meeting = _meet(stack, environment, tcp=tcp)
            report = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="zcoll-run-"))
            )
            common = environment | meeting.variables
            common["ZCOLL_NUM_REPLICAS"] = str(total or count)
            common.setdefault("PYTHONUNBUFFERED", "1")
            code = run_job(
                Job(
                    command=argv,
                    environments={
                        name: common | _of_replica(name, rank, meeting, report)
                        for name, rank in ranks.items()
                    },
                    listener=meeting.listener,
                    report=report,
                    grace=grace,
                    colour=_wants_colour(environment),
                )
            )
    except (ZcollError, OSError) as error:
        raise click.ClickException(str(error)) from error
    sys.exit(code)


def _ranks(
    count: int, total: int | None, first_rank: int | Literal["auto"] | None
) -> dict[str, str]:
    """Work out who is started here: the ranks, by how the output calls them."""
    if first_rank is not None and total is None:
        raise click.UsageError("--first-rank needs --num-replicas, the whole size")
    size = count if total is None else total
    if first_rank == AUTO:
        if count >= size:
            raise click.UsageError(
                f"--first-rank auto asks rank 0 for ranks, and a group of {size} has"
                f" no place for one beside -n {count}: start rank 0 by --first-rank 0"
            )
        return {f"{AUTO}-{index}": AUTO for index in range(count)}
    first = first_rank or 0
    if first + count > size:
        raise click.UsageError(
            f"ranks {first} to {first + count - 1} were asked for, but a group of"
            f" {size} has ranks 0 to {size - 1}: see -n, --first-rank, --num-replicas"
        )
    if total is not None and count < total and first_rank is None:
        raise click.UsageError(
            f"--num-replicas {total} with -n {count} needs --first-rank: which"
            " ranks are the ones of this host?"
        )
    return {str(rank): str(rank) for rank in range(first, first + count)}


def _own_environment() -> dict[str, str]:
    """Copy the environment without what was meant for this process alone."""
    environment = dict(os.environ)
    names = ["ZCOLL_REPLICA_RANK", "ZCOLL_NUM_REPLICAS", LISTEN_FD]
    if environment.pop(REPORT, None) is not None:
        # Started by a replica of another job: that job's address is not ours.
        names += [ADDRESS, PORT]
    for name in names:
        environment.pop(name, None)
    return environment


def _check(environment: Mapping[str, str], *, is_part: bool, tcp: bool) -> None:
    """Refuse an environment in which the group could never meet."""
    missing = [name for name in (ADDRESS, PORT) if not environment.get(name)]
    if is_part and missing:
        raise click.UsageError(
            "a group that is larger than -n meets at rank 0's host: set"
            f" {ADDRESS} and {PORT} on each host ({' and '.join(missing)} not set)"
        )
    if len(missing) == 1:
        (given,) = {ADDRESS, PORT} - set(missing)
        raise click.UsageError(
            f"{given} is set and {missing[0]} is not: set both, or, for a group on"
            " this machine alone, neither"
        )
    if tcp and not missing and not _has_secret(environment):
        raise click.UsageError(
            f"--tcp makes a secret for a group on this machine alone; as {ADDRESS}"
            f" is set, set {SECRET} as well, to the same value on each host"
        )


def _has_secret(environment: Mapping[str, str]) -> bool:
    # An empty one counts: that is an error, which the library explains.
    return SECRET in environment or SECRET_FILE in environment


def _meet(stack: ExitStack, environment: dict[str, str], *, tcp: bool) -> MeetingPoint:
    """Choose where the group meets, and hold that place until the stack is left."""
    if environment.get(ADDRESS):
        return MeetingPoint({}, None)
    # Rank 0 gets the socket itself, so what else to bind does not matter.
    environment.pop("ZCOLL_BIND_ADDR", None)
    variables = {ADDRESS: _LOOPBACK}
    if tcp or _has_secret(environment):
        if not _has_secret(environment):
            variables[SECRET] = secrets.token_urlsafe(32)
        listener = stack.enter_context(socket.socket())
        listener.bind((_LOOPBACK, 0))
        listener.listen(_BACKLOG)
        port = int(listener.getsockname()[1])
    else:
        from zcoll.transport.ipc import Claim  # noqa: PLC0415 - not on Windows

        claim = Claim.reserve()
        stack.callback(claim.release)
        listener = stack.enter_context(claim.listen())
        port = claim.port
    listener.setblocking(False)
    return MeetingPoint(variables | {PORT: str(port)}, listener)


def _of_replica(
    name: str, rank: str, meeting: MeetingPoint, report: Path
) -> dict[str, str]:
    """Make the variables of one replica."""
    variables = {"ZCOLL_REPLICA_RANK": rank, REPORT: str(report / name)}
    if rank == "0" and meeting.listener is not None:
        variables[LISTEN_FD] = str(meeting.listener.fileno())
    return variables


def _wants_colour(environment: Mapping[str, str]) -> bool:
    """Follow https://no-color.org, and terminals that say they cannot."""
    return not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"

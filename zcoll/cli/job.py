"""Starts the replicas of a job and puts their supervisor and output together."""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zcoll.cli.output import Outlet, Pump, prefix_of
from zcoll.cli.processes import Replica, adopt_orphans, start, take_pipes
from zcoll.cli.signals import Inbox
from zcoll.cli.supervisor import Supervisor

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping, Sequence
    from pathlib import Path

NAME = "zcoll run"


@dataclass(frozen=True)
class Job:
    """What is to be run.

    Attributes:
        command: What each replica executes.
        environments: The whole environment of each replica, by its name.
        listener: The socket that rank 0 listens on, or None; closed once it has it.
        report: A private directory for the replicas' last words.
        grace: Seconds from the end of one that failed to the killing of the others.
        colour: Whether a terminal may be given colours.
    """

    command: Sequence[str]
    environments: Mapping[str, Mapping[str, str]] = field(repr=False)  # has the secret
    listener: socket.socket | None
    report: Path
    grace: float
    colour: bool


def run_job(job: Job) -> int:
    """Run a job to its end.

    Returns:
        Its exit code: 0, or that of the replica to blame.

    Raises:
        OSError: A process could not be started; none is left running.
    """
    adopt_orphans()
    with Inbox() as inbox:
        replicas = _start_all(job)
        out, err = _make_pumps(replicas, colour=job.colour)
        for pump in (out, err):
            pump.start()
        supervisor = Supervisor(
            replicas, inbox, report=job.report, grace=job.grace, say=err.say
        )
        code = supervisor.run()
        for pump in (out, err):
            pump.finish()
        for pump in (out, err):
            _await(pump, inbox)
    if out.error is not None and out.error.errno != errno.EPIPE:
        raise OSError(out.error.errno, f"standard output: {out.error.strerror}")
    return code


def fill_standard_descriptors() -> None:
    """Open what we were started without, before anything else gets its number."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number: this one


def _start_all(job: Job) -> list[Replica]:
    replicas: list[Replica] = []
    try:
        for name, environment in job.environments.items():
            gets = [job.listener.fileno()] if job.listener and name == "0" else []
            replicas.append(start(name, job.command, environment, gets))
    except BaseException:
        for replica in replicas:
            replica.send(signal.SIGKILL, group=True)
            replica.process.wait()
        raise
    finally:
        if job.listener is not None:
            job.listener.close()
    return replicas


def _make_pumps(replicas: Sequence[Replica], *, colour: bool) -> tuple[Pump, Pump]:
    first = Outlet(1)
    outlets = first, Outlet(2, twin=first)
    pipes = [(replica.name, take_pipes(replica)) for replica in replicas]
    out, err = (
        Pump(
            outlet,
            [
                (prefix_of(name, colour=colour and outlet.terminal), pair[index])
                for name, pair in pipes
            ],
            NAME,
        )
        for index, outlet in enumerate(outlets)
    )
    return out, err


def _await(pump: Pump, inbox: Inbox) -> None:
    """Wait until all is printed, unless a Ctrl-C says that nobody wants it."""
    while pump.is_alive() and signal.SIGINT not in inbox.wait(0):
        pump.join(0.1)

"""S8: the secret of a job appears nowhere but where it has to be."""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from group import LIMIT, Crew
from job import clean_environment, run_job
from ports import tcp_port

import zcoll
from zcoll.cli.job import Job
from zcoll.cli.run import MeetingPoint
from zcoll.launchers.environment import read_settings, read_target
from zcoll.security import Keys, Secret

if TYPE_CHECKING:
    from collections.abc import Iterator

MARKER = "marker-9b1c-of-a-secret-nobody-may-see"

# A job in which much goes wrong, and everything is told.
SCRIPT = """
import contextlib, glob, logging, os, sys, threading, traceback
import zcoll
from zcoll.launchers.environment import read_settings

logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)

def lines():
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield open(path, "rb").read()

def broken(a, b):
    raise ValueError("broken")

zcoll.initialize(stall_warning=0.2)
rank = zcoll.replica_rank()
print(repr(zcoll.world()), repr(zcoll.world()._engine), read_settings())
marker = os.environ["ZCOLL_SECRET"].encode()
print("in a command line:", sum(marker in line for line in lines()))
for attempt in (
    lambda: zcoll.allreduce(1, broken),
    lambda: zcoll.allreduce(threading.Lock()),
    lambda: zcoll.connect("127.0.0.1", 1, 1, 2, secret=marker[:5]),
    lambda: zcoll.connect("127.0.0.1", 1, 0, 2, secret=marker, bind_addr="192.0.2.1"),
    lambda: zcoll.connect("127.0.0.1", 70000, 1, 2, secret=marker),
    lambda: zcoll.initialize(secret=marker),
):
    try:
        attempt()
    except Exception:
        traceback.print_exc()
if rank == 1:
    import time
    time.sleep(0.5)
zcoll.barrier()
if rank == 2:
    raise RuntimeError("the last word")
zcoll.barrier()
"""


def marks(secret: str) -> list[bytes]:
    """The secret, and what follows from it."""
    keys = Secret.of(secret).keys()
    derived = [getattr(keys, name) for name in Keys.__slots__]
    return [secret.encode(), *derived]


def test_s08_a_job_does_not_show_its_secret(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = run_job(script, 3, tmp_path, environment={"ZCOLL_SECRET": MARKER})
    told = (done.output + done.errors).encode()
    assert done.code == 1
    assert told.count(b"in a command line: 0") == 3
    assert b"the last word" in told
    assert b"ReduceError" in told
    assert b"EncodeError" in told
    assert b"too short (5 bytes)" in told
    assert b"Secret(...)" in told
    assert [mark for mark in marks(MARKER) if mark in told] == []
    assert MARKER[:12].encode() not in told


@contextlib.contextmanager
def everything_logged() -> Iterator[list[str]]:
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record) + repr(vars(record)))

    logger, handler = logging.getLogger("zcoll"), Keep()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def test_s08_ping_does_not_show_the_secret(tmp_path: Path) -> None:
    with everything_logged() as lines, Crew(2, secret=MARKER) as crew:
        for mine, options in (
            (MARKER, ["--json"]),
            (MARKER, []),
            (MARKER + "!", ["--json"]),
            (MARKER + "!", []),
        ):
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "zcoll", "ping", "-c", "1", *options),
                    f"127.0.0.1:{crew.port}",
                ],
                env=clean_environment(ZCOLL_SECRET=mine),
                capture_output=True,
                timeout=LIMIT,
                check=False,
            )
            told = done.stdout + done.stderr
            assert told
            if options:
                for line in done.stdout.splitlines():
                    json.loads(line)
            assert MARKER.encode() not in told
    assert MARKER not in "".join(lines)


def test_s08_errors_and_tracebacks_do_not_show_it() -> None:
    text = ""
    with everything_logged() as lines, Crew(2, secret=MARKER + "!") as crew:
        for port, rank, timeout in (
            (crew.port, 1, LIMIT),  # another secret
            (tcp_port(), 1, 0.1),  # nobody there
            (crew.port, 0, LIMIT),  # in use
        ):
            with pytest.raises(zcoll.ZcollError) as caught:
                zcoll.connect(
                    "127.0.0.1", port, rank, 2, secret=MARKER, timeout=timeout
                )
            text += "".join(traceback.format_exception(caught.value))
            text += repr(caught.value) + repr(vars(caught.value))
    assert MARKER not in text
    assert MARKER not in "".join(lines)


def test_s08_nothing_that_holds_it_shows_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ZCOLL_SECRET", MARKER)
    monkeypatch.setenv("ZCOLL_MASTER_PORT", "5000")
    variables = {"ZCOLL_SECRET": MARKER}
    job = Job([], {"0": variables}, None, tmp_path, 1.0, colour=False)
    holders = [
        read_settings(),
        read_target(None, None),
        Secret.of(MARKER),
        Secret.of(MARKER).keys(),
        MeetingPoint(variables, None),
        job,
    ]
    shown = "".join(f"{one} {one!r}" for one in holders).encode()
    assert [mark for mark in marks(MARKER) if mark in shown] == []


def test_s08_the_secret_of_a_job_is_not_an_argument(tmp_path: Path) -> None:
    """``zcoll run --tcp`` makes one, and gives it to the replicas alone."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, psutil\n"
        "mine = os.environ['ZCOLL_SECRET']\n"
        "parent = psutil.Process().parent()\n"
        "print(len(mine), mine in str(psutil.Process().cmdline()),\n"
        "      mine in str(parent.cmdline()), mine in str(parent.environ()))\n"
    )
    done = run_job(script, 2, tmp_path, options=["--tcp"]).check()
    assert done.output.count("43 False False False") == 2

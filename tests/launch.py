"""Starts ``zcoll run`` as a user would, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import psutil

import zcoll

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Whoever runs the tests in the background has SIGINT ignored, or SIGHUP by nohup.
LAUNCHER = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    "signal.signal(signal.SIGHUP, signal.SIG_DFL);"
    "from zcoll.cli import main; main(prog_name='zcoll')"
)
LIMIT = 40

START = """
import os, signal, subprocess, sys, time
rank = int(os.environ["ZCOLL_REPLICA_RANK"])
def told():
    open(os.environ["ZCOLL_RUN_REPORT"], "w").close()
def ready(*words):
    print("ready", os.getpid(), *words)
def child(code):
    # A child that is in the replica's process group and keeps its output open.
    return subprocess.Popen([sys.executable, "-c", code]).pid
"""


class Launch(Protocol):
    """Starts ``zcoll run`` with options and a script's text."""

    def __call__(
        self,
        *options: str,
        script: str,
        args: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
        within: Sequence[str] = (),
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
    ) -> subprocess.Popen[bytes]: ...


def clean_environment() -> dict[str, str]:
    """Give the environment without anything of a job that runs the tests."""
    prefixes = ("ZCOLL_", "ADAPTDL_", "PYTHONUNBUFFERED", "NO_COLOR")
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(prefixes)
    }
    source = str(Path(zcoll.__path__[0]).parent)
    paths = [source, *filter(None, [environment.get("PYTHONPATH")])]
    return environment | {"PYTHONPATH": os.pathsep.join(paths), "TERM": "xterm"}


def zcoll_command(*words: str) -> list[str]:
    return [sys.executable, "-c", LAUNCHER, *words]


def lines_of(output: bytes, rank: int) -> bytes:
    """Take out what one replica has printed."""
    prefix = b"[%d] " % rank
    lines = output.splitlines(keepends=True)
    return b"".join(line[len(prefix) :] for line in lines if line.startswith(prefix))


def read_lines(process: subprocess.Popen[bytes], count: int) -> list[str]:
    """Wait for lines of the launcher's output; the test's own limit bounds it."""
    assert process.stdout is not None
    return [process.stdout.readline().decode() for _ in range(count)]


def finish(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=LIMIT)
    return process.returncode, errors.decode()


def wait_ready(process: subprocess.Popen[bytes], count: int) -> list[list[int]]:
    """Wait for the ready lines, and give the numbers in them by rank."""
    lines = sorted(read_lines(process, count))
    words = [line.split() for line in lines]
    assert [word[1] for word in words] == ["ready"] * count, lines
    return [[int(number) for number in word[2:]] for word in words]


def is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_gone(pids: Iterable[int]) -> None:
    deadline = time.monotonic() + LIMIT
    left = [pid for pid in pids if is_running(pid)]
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = [pid for pid in left if is_running(pid)]
    assert not left

"""Starts ``zcoll run``, and ends it if the test has not."""

from __future__ import annotations

import os
import signal
import subprocess
import textwrap
from typing import TYPE_CHECKING

import pytest
from launch import LIMIT, Launch, clean_environment, zcoll_command
from ports import ipc_port

from zcoll.transport import ipc

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    started: list[subprocess.Popen[bytes]] = []

    def start(
        *options: str,
        script: str,
        args: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
        within: Sequence[str] = (),
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
    ) -> subprocess.Popen[bytes]:
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(script))
        process = subprocess.Popen(
            [*within, *zcoll_command("run", *options, str(path), *args)],
            env=clean_environment() | dict(env or {}),
            cwd=tmp_path,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(LIMIT)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def port() -> Iterator[int]:
    """Give a port for a group over ipc, and remove what a killed one leaves."""
    with ipc_port() as held:
        yield held
        for left in (ipc.path_of(held), ipc.path_of(held).with_suffix(".lock")):
            left.unlink(missing_ok=True)


@pytest.fixture
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the variables of a job that runs the tests."""
    for name in list(os.environ):
        if name.startswith(("ZCOLL_", "ADAPTDL_")):
            monkeypatch.delenv(name)

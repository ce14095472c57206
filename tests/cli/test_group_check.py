from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from launch import LIMIT, clean_environment, zcoll_command

from zcoll.cli.group_check import Plan, WrongValueError, check_group
from zcoll.communicator import Communicator
from zcoll.errors import (
    AuthenticationError,
    CollectiveError,
    CollectiveTimeoutError,
    RendezvousTimeoutError,
    ReplicaLostError,
    ZcollError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = {"ZCOLL_SECRET": "a secret of the tests, long enough"}
WRONG = {"ZCOLL_SECRET": "another secret of the tests, long enough"}


def run_check(
    count: int, *words: str, env: dict[str, str] | None = None
) -> tuple[list[str], str]:
    """Let ``zcoll run`` start the check, and give rank 0's lines."""
    done = subprocess.run(
        zcoll_command("run", f"-n{count}", "-m", "zcoll", "ping", "--group", *words),
        env=clean_environment() | (env or {}),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert all(line.startswith("[0] ") for line in lines), lines
    return [line[4:] for line in lines], done.stderr


@contextlib.contextmanager
def members(
    port: int,
    ranks: range,
    total: int,
    *words: str,
    env: dict[int, dict[str, str]] | None = None,
) -> Iterator[list[subprocess.Popen[str]]]:
    """The command on some replicas, started by hand."""
    place = {"ZCOLL_MASTER_ADDR": "127.0.0.1", "ZCOLL_MASTER_PORT": str(port)}
    started = []
    for rank in ranks:
        own = {"ZCOLL_REPLICA_RANK": str(rank), "ZCOLL_NUM_REPLICAS": str(total)}
        more = (env or {}).get(rank, {})
        started.append(
            subprocess.Popen(
                zcoll_command("ping", "--group", *words),
                env=clean_environment() | place | own | more,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate(timeout=LIMIT)


@pytest.mark.parametrize("env", [{}, SECRET], ids=["ipc", "tcp"])
def test_rank_0_prints_an_aligned_table(env: dict[str, str]) -> None:
    lines, errors = run_check(3, env=env)
    assert errors == ""
    assert len(lines) == 5
    assert re.split(r"  +", lines[0]) == [
        "rank",
        "host",
        "pid",
        "ping ms",
        "barrier ms",
        "allreduce ms",
        "broadcast ms",
    ]
    assert len({len(line) for line in lines[:4]}) == 1
    rows = [line.split() for line in lines[1:4]]
    assert [row[0] for row in rows] == ["0", "1", "2"]
    assert {row[1] for row in rows} == {socket.gethostname()}
    assert rows[0][3] == "-"
    assert all(float(time) > 0 for row in rows[1:] for time in row[3:])
    assert lines[4].startswith("3 replicas, 3 rounds: every value is right")


def test_json_and_a_large_broadcast() -> None:
    lines, _ = run_check(2, "--json", "--count=5", "--size=300000")
    found = json.loads("".join(lines))
    assert (found["complete"], found["rounds"]) == (True, 5)
    assert [one["rank"] for one in found["replicas"]] == [0, 1]
    assert found["replicas"][0]["ping"] is None
    assert found["replicas"][1]["ping"] > 0


def test_a_replica_that_does_not_come(port: int) -> None:
    with (
        members(port, range(1), 3, "--wait=4", "--json") as (zero,),
        members(port, range(1, 2), 3, "--wait=2", "--json") as (one,),
    ):
        output, errors = one.communicate(timeout=LIMIT)
        assert (one.returncode, output) == (1, "")
        assert "replica 1: the group was not complete after 2 s" in errors
        assert "replica 2 missing" in errors
        output, errors = zero.communicate(timeout=LIMIT)
    assert zero.returncode == 1
    assert "replica 0: the group was not complete after 4 s" in errors
    found = json.loads(output)
    assert (found["complete"], found["missing"]) == (False, [1, 2])


def test_rank_0_does_not_come(port: int) -> None:
    with members(port, range(1, 2), 2, "--wait=0.5") as (process,):
        _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 3
    assert "replica 0 missing" in errors


def test_a_replica_that_is_stopped_meanwhile(port: int) -> None:
    endless = ("--count=1000000", "--timeout=1", "--wait=30")
    with members(port, range(3), 3, *endless) as started:
        done = subprocess.run(
            zcoll_command("ping", f"127.0.0.1:{port}", "--wait=30", "--json"),
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=True,
        )
        by_rank = [one["pid"] for one in json.loads(done.stdout)["group"]["replicas"]]
        assert by_rank == [process.pid for process in started]
        os.kill(started[1].pid, signal.SIGSTOP)
        _, errors = started[0].communicate(timeout=LIMIT)
        os.kill(started[1].pid, signal.SIGCONT)
    assert started[0].returncode == 1
    assert "missing: replica 1" in errors


def test_a_wrong_environment() -> None:
    with members(0, range(1), 2) as (process,):
        _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 2
    assert "ZCOLL_MASTER_PORT is 0" in errors


# --- without a group ------------------------------------------------------


@pytest.mark.usefixtures("no_job")
def test_one_replica_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_group(Plan(1, 1.0, 0), None, as_json=False) == 0
    assert "1 replica, 1 round: " in capsys.readouterr().out


@pytest.mark.usefixtures("no_job")
@pytest.mark.parametrize("operation", ["allreduce", "broadcast"])
def test_a_wrong_value(
    operation: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(*_: Any, **__: Any) -> str:
        return "nonsense"

    monkeypatch.setattr(Communicator, operation, answer)
    assert check_group(Plan(1, 1.0, 0), None, as_json=True) == 1
    output, errors = capsys.readouterr()
    assert json.loads(output)["complete"] is False
    assert f"{operation} gave 'nonsense' instead of " in errors


@pytest.mark.usefixtures("no_job")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RendezvousTimeoutError([1], 1.0, ""), 1),
        (RendezvousTimeoutError([0], 1.0, ""), 3),
        (CollectiveTimeoutError("", missing=[2], timeout=1.0), 1),
        (CollectiveTimeoutError("", missing=[0, 2], timeout=1.0), 3),
        (ReplicaLostError("", rank=1), 1),
        (ReplicaLostError("", rank=0), 3),
        (AuthenticationError(""), 3),
        (CollectiveError(""), 1),
        (WrongValueError(""), 1),
    ],
)
def test_exit_codes(
    error: ZcollError, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: Any) -> None:
        raise error

    monkeypatch.setattr("zcoll.cli.group_check.connect", fail)
    assert check_group(Plan(1, 1.0, 0), None, as_json=False) == code

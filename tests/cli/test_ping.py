from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from launch import LIMIT, Launch, clean_environment, wait_ready, zcoll_command
from ports import tcp_port

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = {"ZCOLL_SECRET": "a secret of the tests, long enough"}
WRONG = {"ZCOLL_SECRET": "another secret of the tests, long enough"}
NONE: dict[str, str] = {}
STAY = """
    import os, time, zcoll
    with zcoll.connect() as group:
        group.barrier()
        print("ready", os.getpid(), flush=True)
        if os.environ.get("TEST_CALL") and group.replica_rank != 1:
            group.broadcast(None, root=1)
        time.sleep(600)
"""


@dataclass(frozen=True)
class Done:
    """How ``zcoll ping`` ended."""

    code: int
    output: str
    errors: str
    seconds: float


def ping(*words: str, env: dict[str, str] | None = None) -> Done:
    started = time.monotonic()
    done = subprocess.run(
        zcoll_command("ping", *words),
        env=clean_environment() | (env or {}),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    seconds = time.monotonic() - started
    return Done(done.returncode, done.stdout, done.stderr, seconds)


@contextlib.contextmanager
def replicas(
    launch: Launch, port: int, here: int, total: int, env: dict[str, str]
) -> Iterator[list[int]]:
    """Some replicas of a group; their process ids, if they are all of them."""
    given = {"ZCOLL_MASTER_ADDR": "127.0.0.1", "ZCOLL_MASTER_PORT": str(port)}
    process = launch(
        f"-n{here}",
        f"--num-replicas={total}",
        "--first-rank=0",
        script=STAY,
        env=given | env,
    )
    try:
        complete = here == total
        yield [pid for (pid,) in wait_ready(process, total)] if complete else []
    finally:
        process.terminate()
        process.communicate(timeout=LIMIT)


# --- the five answers -----------------------------------------------------


@pytest.mark.parametrize("env", [NONE, SECRET], ids=["ipc", "tcp"])
def test_a_gathering_group(launch: Launch, port: int, env: dict[str, str]) -> None:
    there = port if not env else tcp_port()
    with replicas(launch, there, 1, 2, env):
        waited = ping(f"127.0.0.1:{there}", "--wait=30", "--reachable", env=env)
        done = ping(f"127.0.0.1:{there}", "-i0", env=env)
        fields = json.loads(ping(f"[::1]:{port}", "--json").output) if not env else {}
    assert (waited.code, done.code) == (0, 1)
    lines = done.output.splitlines()
    assert lines[0].startswith("PING ")
    assert [line.split()[:3] for line in lines[1:4]] == [
        ["answer", "from", "replica"]
    ] * 3
    assert lines[4].startswith("3 sent, 3 answered, min/median/p99/max = ")
    assert lines[5].endswith(": 1 of 2 replicas, the group is not complete")
    assert lines[6].startswith(f"  present: replica 0 on {socket.gethostname()} (pid ")
    assert lines[7] == "  missing: replica 1"
    assert lines[8] == "  calls:   0 done, none in progress"
    assert done.errors == ""
    if fields:
        assert (fields["reachable"], fields["complete"]) == (True, False)
        assert (fields["missing"], fields["sent"], fields["answered"]) == ([1], 3, 3)


@pytest.mark.parametrize("env", [NONE, SECRET], ids=["ipc", "tcp"])
def test_a_complete_group(launch: Launch, port: int, env: dict[str, str]) -> None:
    there = port if not env else tcp_port()
    with replicas(launch, there, 2, 2, env) as pids:
        given = env | {"ADAPTDL_MASTER_PORT": str(there)}
        done = ping("--size=100000", "--count=2", env=given)
        fields = json.loads(ping("--json", "-c1", env=given).output)
    assert done.code == 0, done.errors
    assert ": 100000 bytes\n" in done.output
    assert "2 of 2 replicas, the group is complete\n" in done.output
    both = f"replicas 0-1 on {socket.gethostname()} (pids {pids[0]}, {pids[1]})"
    assert f"  present: {both}\n" in done.output
    assert "missing" not in done.output
    assert (fields["complete"], fields["missing"]) == (True, [])
    assert [one["pid"] for one in fields["group"]["replicas"]] == pids
    assert set(fields["milliseconds"]) == {"min", "median", "p99", "max"}


@pytest.mark.parametrize("env", [NONE, SECRET], ids=["no secret", "secret"])
def test_nothing(env: dict[str, str]) -> None:
    port = tcp_port()
    done = ping(f"127.0.0.1:{port}", "--timeout=30", env=env)
    assert done.code == 3
    assert done.output.endswith("1 sent, 0 answered\n")
    assert done.errors.startswith("not reachable: nobody listens at ")
    assert str(port) in done.errors
    assert done.seconds < 10, "this is known at once"


@pytest.mark.parametrize("env", [NONE, SECRET], ids=["no secret", "secret"])
def test_a_plain_listener(env: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        done = ping(address, "--timeout=1", env=env)
        fields = json.loads(ping(address, "--json", "-W.2", env=env).output)
    assert done.code == 3
    assert done.errors == (
        f"not reachable: what listens at {address} does not answer: it is stopped or "
        "busy, or not zcoll\n"
    )
    assert (fields["reachable"], fields["reason"]) == (False, "no-answer")
    assert fields["group"] is None


def test_a_wrong_secret(launch: Launch) -> None:
    port = tcp_port()
    with replicas(launch, port, 2, 2, SECRET):
        wrong = ping(f"127.0.0.1:{port}", "--timeout=30", env=WRONG)
        missing = ping(f"127.0.0.1:{port}", "--timeout=30")
    assert (wrong.code, missing.code) == (3, 3)
    assert "was refused: rank 0 there has another secret" in wrong.errors
    assert "has a secret, and none is set here" in missing.errors
    assert max(wrong.seconds, missing.seconds) < 10
    for value in (*SECRET.values(), *WRONG.values()):
        assert value not in wrong.output + wrong.errors


# --- other states of a group ----------------------------------------------


def test_a_secret_on_this_side_only(launch: Launch, port: int) -> None:
    with replicas(launch, port, 2, 2, NONE):
        done = ping(f"localhost:{port}", env=SECRET)
    assert done.code == 3
    assert "a secret is set here" in done.errors


def test_a_stopped_rank_0(launch: Launch, port: int) -> None:
    with replicas(launch, port, 2, 2, NONE) as pids:
        os.kill(pids[0], signal.SIGSTOP)
        try:
            done = ping(f"127.0.0.1:{port}", "--timeout=0.5")
        finally:
            os.kill(pids[0], signal.SIGCONT)
    assert (done.code, "is stopped or busy" in done.errors) == (3, True)


def test_a_rank_0_that_dies_between_two_probes(launch: Launch, port: int) -> None:
    with replicas(launch, port, 2, 2, NONE) as pids:
        process = subprocess.Popen(
            zcoll_command("ping", f"127.0.0.1:{port}", "-c2", "-i1"),
            env=clean_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        first = [process.stdout.readline() for _ in range(2)]
        os.kill(pids[0], signal.SIGKILL)
        output, errors = process.communicate(timeout=LIMIT)
    assert "seq=1" in first[1]
    assert "no answer: seq=2\n2 sent, 1 answered" in output
    assert "not reachable: nobody listens" in errors
    assert process.returncode == 3


def test_the_call_in_progress(launch: Launch, port: int) -> None:
    with replicas(launch, port, 3, 3, {"TEST_CALL": "1"}):
        deadline = time.monotonic() + LIMIT
        while True:
            done = ping(f"127.0.0.1:{port}")
            if "in user code" in done.output:
                break
            assert time.monotonic() < deadline, done.output
    assert done.code == 0
    last = done.output.splitlines()[-3:]
    assert last[0] == "  calls:   1 done, call 2 in progress"
    assert last[1].startswith("    broadcast")
    assert "script.py:7" in last[1]
    assert last[2].startswith("    missing: replica 1 (")
    assert "script.py:4" in last[2]


# --- waiting --------------------------------------------------------------


def test_wait_ends_when_the_group_is_complete(launch: Launch, port: int) -> None:
    found: list[Done] = []
    waiter = threading.Thread(
        target=lambda: found.append(ping(f"127.0.0.1:{port}", "--wait=35", "-c1"))
    )
    waiter.start()
    with replicas(launch, port, 2, 2, NONE):
        waiter.join(LIMIT)
    assert found[0].code == 0
    assert "2 of 2 replicas, the group is complete" in found[0].output
    assert "1 sent, 1 answered" in found[0].output


def test_wait_runs_out(launch: Launch, port: int) -> None:
    with replicas(launch, port, 1, 2, NONE):
        ping(f"127.0.0.1:{port}", "--wait=30", "--reachable")
        done = ping(f"127.0.0.1:{port}", "--wait=0.7", "-c1")
    assert done.code == 1
    assert done.errors == "waiting: 1 of 2 replicas, replica 1 missing\n"
    assert done.output.splitlines()[-2] == "  missing: replica 1"
    nobody = ping(f"127.0.0.1:{port}", "--wait=0.7")
    assert nobody.code == 3
    told = [line.split(":")[0] for line in nobody.errors.splitlines()]
    assert told == ["waiting", "not reachable"], "news is told once"
    assert 0.7 < nobody.seconds < 8


def test_ctrl_c_ends_with_the_summary(launch: Launch, port: int) -> None:
    with replicas(launch, port, 2, 2, NONE):
        process = subprocess.Popen(
            zcoll_command("ping", f"127.0.0.1:{port}", "-c1000"),
            env=clean_environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        while "seq=2" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=LIMIT)
    assert "answered, min/median/p99/max" in output
    assert process.returncode == 130

"""Groups of real processes that meet in shared memory."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from job import JOBS, Finished, clean_environment, run_job, run_program
from ports import ipc_port
from processes.lane_calls import call_often
from processes.limits import memory_limit

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1024 * 1024
LANES = ["auto", "zmq"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs memfd")


def check(finished: Finished, size: int, calls: int, lane: str = "auto") -> None:
    found = finished.check().reports
    assert sorted(found) == list(range(size))
    for told in found.values():
        assert (told["done"], told["wrong"], told["lost"]) == (calls, None, None)
        # pyzmq keeps some for good once it has sent large frames.
        assert lane == "zmq" or told["left"] == 0
        assert told["lanes"] == 0


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("size", [2, 5])
def test_calls_of_random_sizes(results: Path, size: int, lane: str) -> None:
    environment = {"ZCOLL_LANE": lane}
    arguments = ("lane.py", size, results, "400", "0", str(8 * MIB), str(size))
    check(run_job(*arguments, environment=environment), size, 400, lane)


@pytest.mark.timeout(150)
def test_thousands_of_calls(results: Path) -> None:
    """``tools/lane`` makes 100,000."""
    check(call_often(results, 3, 2000, 8 * MIB, 3, timeout=120), 3, 2000)


@pytest.mark.parametrize("lane", LANES)
def test_arrays_of_random_sizes(results: Path, lane: str) -> None:
    """Whatever the program does with operands and results, others see nothing of it."""
    arguments = ("arrays.py", 4, results, "50", str(8 * 10**6), "1")
    found = run_job(*arguments, environment={"ZCOLL_LANE": lane}).check().reports
    assert [found[rank]["wrong"] for rank in range(4)] == [None] * 4
    assert all(told["kept"] for told in found.values())


@pytest.mark.parametrize("seed", range(4))
def test_a_replica_is_killed_while_200_mb_are_on_their_way(
    results: Path, seed: int
) -> None:
    """Whoever survives learns who was lost, and keeps nothing of the lane."""
    size, chance = 3, random.Random(seed)
    victim = seed % size
    after = chance.random() * 2.0
    words = ["1000", *[str(200 * 10**6)] * 2, str(seed), str(victim), str(after)]
    with ipc_port() as port, contextlib.ExitStack() as stack:
        replicas = []
        for rank in range(size):
            environment = clean_environment(
                TEST_RESULTS=str(results),
                ZCOLL_LANE="auto",
                ZCOLL_MASTER_PORT=str(port),
                ZCOLL_REPLICA_RANK=str(rank),
                ZCOLL_NUM_REPLICAS=str(size),
            )
            command = [sys.executable, str(JOBS / "lane.py"), *words]
            replica = subprocess.Popen(command, env=environment)
            replicas.append(stack.enter_context(replica))
            stack.callback(replica.kill)
        for replica in replicas:
            replica.wait(50)
    found = run_program([sys.executable, "-c", ""], results).reports
    assert sorted(found) == [rank for rank in range(size) if rank != victim]
    for told in found.values():
        assert (told["lost"], told["wrong"]) == (victim, None)
        assert (told["left"], told["lanes"]) == (0, 0)
    assert not [name for name in os.listdir("/dev/shm") if "zcoll" in name]


@pytest.mark.parametrize("room", [100_000, MIB, 5 * MIB])
def test_a_system_that_has_no_more_memory(results: Path, room: int) -> None:
    """Who finds no more goes on by ZeroMQ, and says so once: also for two lanes."""
    environment = {"ZCOLL_LANE": "auto", "TEST_ROOM": str(room)}
    arguments = ("lane.py", 3, results, "50", "0", str(16 * MIB), "1")
    finished = run_job(*arguments, environment=environment)
    check(finished, 3, 50, "zmq")
    warning = "no room for shared memory: going on by ZeroMQ"
    told = [line for line in finished.errors.splitlines() if warning in line]
    assert len(told) == len(set(told))
    if room < MIB:  # else what is sent may find room just so
        assert f"[0] {warning}" in told


def test_files_that_may_not_be_so_large(results: Path) -> None:
    """All goes by ZeroMQ from the start, which is nothing to warn of."""
    limited = 'ulimit -f 1000 && exec "$@"'
    words = ["-m", "zcoll", "run", "-n", "3", "--", str(JOBS / "lane.py")]
    command = ["sh", "-c", limited, "sh", sys.executable, *words]
    command += ["50", "0", str(16 * MIB), "1"]
    finished = run_program(command, results, {"ZCOLL_LANE": "auto"})
    check(finished, 3, 50, "zmq")
    assert finished.errors == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_a_shared_memory_directory_of_16_mb(results: Path) -> None:
    """As in a container: it bounds nothing here, and nothing is left there.

    The lane's memory is a memfd, which is on a mount of the kernel's own: 64 MiB of it
    can be had beside a directory of 1 MiB. It is bounded by what bounds all memory:
    the control group, in which too much of it ends a process by SIGKILL as any other
    allocation would; and on a machine that promises no more than it has, a refusal,
    see above. It is reserved before it is written, so neither is a SIGBUS.
    """
    mount = 'mount -t tmpfs -o size=16m tmpfs /dev/shm && "$@" && ls -A /dev/shm'
    words = ["-m", "zcoll", "run", "-n", "3", "--", str(JOBS / "lane.py")]
    command = ["unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, *words]
    command += ["50", "0", str(64 * MIB), "1"]
    finished = run_program(command, results, {"ZCOLL_LANE": "auto"})
    check(finished, 3, 50)
    assert finished.output == ""  # and nothing is left there


@pytest.mark.parametrize("megabytes", [100, 160, 200, 240, 600])
def test_a_limit_on_memory(results: Path, megabytes: int) -> None:
    """The system kills who needs more than there is; nobody touches what is not there.

    Shared memory counts as its processes' own. With SIGBUS a process would end that
    writes to memory which was promised, and is not there.
    """
    enter = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
    words = ["-m", "zcoll", "run", "-n", "3", "--", str(JOBS / "lane.py")]
    words += ["40", "0", str(16 * MIB), "1"]
    with memory_limit(f"zcoll-{os.getpid()}-{megabytes}", megabytes * MIB) as group:
        command = ["sh", "-c", enter, str(group), sys.executable, *words]
        finished = run_program(command, results)
    assert "SIGBUS" not in finished.errors
    if megabytes == 600:
        check(finished, 3, 40, "auto")
    assert finished.code in (0, -signal.SIGKILL, 128 + signal.SIGKILL)

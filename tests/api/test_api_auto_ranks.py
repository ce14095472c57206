"""``replica_rank="auto"``: rank 0 gives the ranks."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal

import pytest
from group import LIMIT, SECRET
from job import clean_environment
from ports import ipc_port, tcp_port
from probing import prober, target

import zcoll
from zcoll.probe import Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HOME = "127.0.0.1"
Rank = int | Literal["auto"]


@pytest.fixture(params=[None, SECRET], ids=["ipc", "tcp"])
def place(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Where a group meets, as arguments of ``connect``."""
    if request.param:
        yield {"master_port": tcp_port(), "secret": request.param}
    else:
        with ipc_port() as port:
            yield {"master_port": port}


def together(tasks: list[Callable[[], Any]]) -> list[Any]:
    with ThreadPoolExecutor(len(tasks)) as pool:
        return [each.result(LIMIT) for each in [pool.submit(task) for task in tasks]]


@pytest.mark.parametrize(
    "ranks",
    [[0, "auto"], [0, "auto", "auto", "auto"], ["auto", 2, 0, "auto", 4]],
    ids=str,
)
def test_everybody_has_a_rank_of_its_own(
    ranks: list[Rank], place: dict[str, Any]
) -> None:
    size = len(ranks)

    def task(rank: Rank) -> tuple[Rank, int, list[int], str]:
        with zcoll.connect(
            HOME, replica_rank=rank, num_replicas=size, timeout=LIMIT, **place
        ) as comm:
            gathered = comm.allreduce([comm.replica_rank])
            return rank, comm.replica_rank, gathered, repr(comm)

    done = together([lambda rank=rank: task(rank) for rank in ranks])  # type: ignore[misc]
    assert sorted(got for _, got, _, _ in done) == list(range(size))
    for told, got, gathered, text in done:
        assert told in ("auto", got)
        assert gathered == list(range(size))
        assert text == f"<Communicator rank {got} of {size}>"


def test_it_comes_from_the_environment(
    place: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZCOLL_REPLICA_RANK", "auto")

    def task(rank: int | None) -> int:
        with zcoll.connect(
            HOME, replica_rank=rank, num_replicas=2, timeout=LIMIT, **place
        ) as comm:
            return comm.replica_rank

    assert together([lambda: task(None), lambda: task(0)]) == [1, 0]


def test_one_replica_alone_is_rank_0() -> None:
    with zcoll.connect(replica_rank="auto", num_replicas=1) as comm:
        assert comm.replica_rank == 0


def test_of_how_many_must_be_known() -> None:
    with pytest.raises(zcoll.ConfigurationError, match="nothing says of how many"):
        zcoll.connect(HOME, 5000, "auto")


def test_what_is_neither_a_rank_nor_auto(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(zcoll.ConfigurationError, match="replica_rank"):
        zcoll.connect(HOME, 5000, "any", 2)  # type: ignore[arg-type]
    monkeypatch.setenv("ZCOLL_REPLICA_RANK", "automatic")
    with pytest.raises(
        zcoll.ConfigurationError, match="ZCOLL_REPLICA_RANK='automatic'"
    ):
        zcoll.connect(HOME, 5000, num_replicas=2)


def test_without_rank_0_it_says_so(place: dict[str, Any]) -> None:
    with pytest.raises(zcoll.RendezvousTimeoutError) as caught:
        zcoll.connect(HOME, replica_rank="auto", num_replicas=2, timeout=0.3, **place)
    assert caught.value.missing == [0]


JOB = """
import sys, zcoll
with zcoll.connect(timeout=40) as comm:
    hosts = comm.allreduce([sys.argv[1]])
    print(comm.replica_rank, *hosts)
"""


class Started:
    """Replicas in processes, each told where the group is and which rank it has."""

    def __init__(self, script: Path, place: dict[str, Any], size: int) -> None:
        script.write_text(JOB)
        self._script = script
        self._environment = {
            "ZCOLL_MASTER_ADDR": HOME,
            "ZCOLL_MASTER_PORT": str(place["master_port"]),
            "ZCOLL_NUM_REPLICAS": str(size),
        }
        if "secret" in place:
            self._environment["ZCOLL_SECRET"] = place["secret"]
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, rank: Rank) -> None:
        environment = self._environment | {"ZCOLL_REPLICA_RANK": str(rank)}
        self.processes[name] = subprocess.Popen(
            [sys.executable, str(self._script), name],
            env=clean_environment(**environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL

    def finish(self) -> dict[str, list[str]]:
        """Wait for all: what each has printed."""
        words = {}
        for name, process in self.processes.items():
            output, errors = process.communicate(timeout=LIMIT * 2)
            assert process.returncode == 0, output + errors
            words[name] = output.split()
        return words


@pytest.fixture
def started(tmp_path: Path, place: dict[str, Any]) -> Iterator[Started]:
    started = Started(tmp_path / "job.py", place, 4)
    yield started
    for process in started.processes.values():
        process.kill()
        process.communicate()


def wait_until_without_rank(place: dict[str, Any], count: int) -> None:
    """Ask rank 0, once it is up, until it knows of so many who wait for a rank."""
    deadline, seen = time.monotonic() + LIMIT, None
    while time.monotonic() < deadline:
        with (
            contextlib.suppress(Unreachable),
            prober(target(place["master_port"], place.get("secret"))) as one,
        ):
            seen = one.ask(1.0).status.unranked
        if seen == count:
            return
        time.sleep(0.02)
    raise AssertionError(f"{seen} wait for a rank, and not {count}")


def test_one_that_is_killed_before_all_are_there_frees_its_place(
    started: Started, place: dict[str, Any]
) -> None:
    started.start("zero", 0)
    started.start("killed", "auto")
    started.start("first", "auto")
    wait_until_without_rank(place, 2)
    started.kill("killed")
    wait_until_without_rank(place, 1)
    started.start("second", "auto")
    started.start("fixed", 2)
    words = started.finish()
    assert [words["zero"][0], words["fixed"][0]] == ["0", "2"]
    ranked = sorted(words, key=lambda name: int(words[name][0]))
    assert [words[name][1:] for name in words] == [ranked] * 4
    # They are of one host, so the order is that of their process numbers.
    pids = {name: each.pid for name, each in started.processes.items()}
    given = [name for name in ranked if name in ("first", "second")]
    assert given == sorted(given, key=pids.__getitem__)

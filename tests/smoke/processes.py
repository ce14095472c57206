"""The stage of processes: the same job on this machine, without containers."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from smoke.stage import LIMIT

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parent.parent.parent
JOBS = ROOT / "tests" / "smoke" / "jobs"
WORDCOUNT = ROOT / "examples" / "wordcount.py"
HOST = "127.0.0.1"


class Process:
    """One replica's process; a :class:`~smoke.stage.Member`."""

    def __init__(
        self, name: str, command: list[str], environment: Mapping[str, str], log: Path
    ) -> None:
        self.name = name
        self.host = socket.gethostname()
        self._log = log
        self._ended_at = 0.0
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def log(self) -> str:
        """All that it has printed."""
        return self._log.read_text(errors="replace")

    def exit_code(self) -> int | None:
        """How it ended; None if it has not."""
        code = self._process.poll()
        if code is not None and not self._ended_at:
            self._ended_at = time.time()
        return code

    def ended_at(self) -> float:
        """When it was seen to have ended, in seconds since the epoch."""
        return self._ended_at

    def kill(self) -> None:
        """End it without a word."""
        self._process.kill()

    def pause(self) -> None:
        """Stop it."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def cut(self) -> None:
        """Not here."""
        raise NotImplementedError

    mend = cut

    def end(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait()


class Processes:
    """Processes that use TCP on loopback; a :class:`~smoke.stage.Stage`.

    Args:
        secret: A file with the group's secret.
        folder: A directory for what the processes print.
    """

    def __init__(self, secret: Path, folder: Path) -> None:
        self.lacks = {"cut": "the loopback interface is not to be cut"}
        self._secret = secret
        self._folder = folder
        self._stop = folder / "stop"
        self._started = 0
        self._replicas: list[Process] = []
        self._others: list[Process] = []
        self._job: list[str] = []
        self._environment: dict[str, str] = {}

    def prepare(self, job: str, replicas: int) -> None:
        """Say what is to be run."""
        self._job = [sys.executable, *shlex.split(job)]
        self._environment = {
            "ZCOLL_MASTER_ADDR": HOST,
            "ZCOLL_MASTER_PORT": str(_free_port()),
            "ZCOLL_NUM_REPLICAS": str(1 + replicas),
            "ZCOLL_SECRET_FILE": str(self._secret),
            "ZCOLL_HEARTBEAT_INTERVAL": "0.5",
            "ZCOLL_HEARTBEAT_TIMEOUT": "2",
        }

    def start(self) -> list[Process]:
        """Start it. Rank 0 is the first."""
        others = int(self._environment["ZCOLL_NUM_REPLICAS"]) - 1
        return [self.start_rank_0(), *self.start_replicas(others)]

    def start_rank_0(self) -> Process:
        """Start rank 0 alone."""
        zero = self._start("rank 0", self._job, {"ZCOLL_REPLICA_RANK": "0"})
        self._others.append(zero)
        return zero

    def start_replicas(self, count: int) -> list[Process]:
        """Start replicas until there are so many."""
        rank = {"ZCOLL_REPLICA_RANK": "auto"}
        while len(self._replicas) < count:
            name = f"replica process {len(self._replicas) + 1}"
            self._replicas.append(self._start(name, self._job, rank))
        return list(self._replicas)

    def _start(self, name: str, command: list[str], more: dict[str, str]) -> Process:
        self._started += 1
        log = self._folder / f"{self._started}.log"
        return Process(name, command, {**self._environment, **more}, log)

    def ask(self, *options: str, secret: bool) -> tuple[int, str]:
        """Let ``zcoll ping`` ask the group."""
        environment = os.environ | self._environment
        if not secret:
            del environment["ZCOLL_SECRET_FILE"]
        done = subprocess.run(
            [sys.executable, "-m", "zcoll", "ping", *options],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        return done.returncode, done.stdout

    def finish(self) -> None:
        """Let the smoke job come to its end."""
        self._stop.touch()

    def flood(self) -> Process:
        """Let a stranger bother rank 0."""
        port = self._environment["ZCOLL_MASTER_PORT"]
        command = [sys.executable, str(JOBS / "flood.py"), HOST, port]
        self._others.append(self._start("the stranger", command, {}))
        return self._others[-1]

    def rounds_job(self) -> str:
        """The smoke job, as ``prepare`` takes it."""
        return shlex.join([str(JOBS / "rounds.py"), str(self._stop)])

    def wordcount_job(self) -> str:
        """The example that counts words, likewise."""
        return shlex.join([str(WORDCOUNT)])

    def count_alone(self) -> str:
        """How many words one process counts."""
        done = subprocess.run(
            [sys.executable, str(WORDCOUNT)],
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=True,
        )
        found = re.search(r"1 replica counted ([\d,]+) words", done.stdout)
        return found[1] if found else done.stdout

    def clear(self) -> None:
        """End everything, and forget it."""
        for process in (*self._replicas, *self._others):
            process.end()
        self._replicas, self._others = [], []
        self._stop.unlink(missing_ok=True)


def _free_port() -> int:
    """A port of the loopback interface that was free a moment ago."""
    with socket.socket() as chosen:
        chosen.bind((HOST, 0))
        return int(chosen.getsockname()[1])

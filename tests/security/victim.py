"""Rank 0 in a process of its own, which a test attacks; runs as a program.

Rank 1 is in the test. What it contributes to an allreduce tells rank 0's reduce
function what to do: numbers are added, words are obeyed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import psutil
from group import LIMIT
from job import clean_environment
from ports import ipc_port, tcp_port

import zcoll

if TYPE_CHECKING:
    from collections.abc import Iterator

HOME = "127.0.0.1"
PATIENCE = 60.0  # seconds for a group to come together


def _obey(_: Any, order: Any) -> Any:
    if not isinstance(order, tuple):
        return order
    word, seconds = order
    if word == "sleep":
        time.sleep(seconds)
    elif word == "hold":  # no other thread of this process runs meanwhile
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1000)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            sum(range(1_000_000))
        sys.setswitchinterval(interval)
    return word


def serve(port: int, size: int, files: int) -> None:
    """Be rank 0 until told to stop."""
    logging.basicConfig(level=logging.INFO)
    if files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    with zcoll.connect(HOME, port, 0, size, timeout=PATIENCE) as comm:
        while comm.allreduce(None, _obey) != "stop":
            pass


class Victim:
    """Rank 0, as the test sees it.

    Attributes:
        port: Where it listens.
        process: It.
    """

    def __init__(
        self, port: int, secret: str | None, size: int = 2, files: int = 0
    ) -> None:
        self.port = port
        self._secret = secret
        self._size = size
        environment = clean_environment(**({"ZCOLL_SECRET": secret} if secret else {}))
        environment["PYTHONPATH"] += os.pathsep + os.path.dirname(
            os.path.dirname(__file__)
        )
        words = [str(port), str(size), str(files)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "security.victim", *words],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )

    def join(self, rank: int = 1) -> zcoll.Communicator:
        """Come into its group."""
        return zcoll.connect(
            HOME, self.port, rank, self._size, secret=self._secret, timeout=LIMIT
        )

    @property
    def memory(self) -> int:
        """Its resident memory, in bytes."""
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def finish(self) -> str:
        """Wait for its end, and give what it has logged."""
        _, errors = self.process.communicate(timeout=LIMIT)
        assert self.process.returncode == 0, errors
        return errors


@contextlib.contextmanager
def victim(secret: str | None, size: int = 2, files: int = 0) -> Iterator[Victim]:
    """Start rank 0, and end it with the block."""
    with contextlib.ExitStack() as held:
        port = tcp_port() if secret else held.enter_context(ipc_port())
        one = Victim(port, secret, size, files)
        try:
            yield one
        except BaseException:
            status = one.process.poll()
            one.process.kill()
            log = one.process.communicate()[1]
            sys.stderr.write(f"rank 0 had ended by {status}, and said:\n{log}")
            raise
        finally:
            if one.process.poll() is None:
                one.process.kill()
                one.process.communicate()


def stop(comm: zcoll.Communicator) -> None:
    """Let the victim end, and leave with it."""
    comm.allreduce(("stop", 0.0))
    comm.teardown()


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

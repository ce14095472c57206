"""The processes of one variant, as the bench sees them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.orders import Failed, Place, Ran, Run, Start, Started, Stop
from bench.variants import mpiexec

if TYPE_CHECKING:
    from bench.variants import Variant

# Seconds for all processes to be there and to have imported: some, and for each one.
JOIN_LIMIT = 60.0
JOIN_LIMIT_EACH = 1.0
CALL_LIMIT = 240.0  # seconds for an order to be carried out
STOP_LIMIT = 5.0  # seconds to end after being told to


class BrokenGroupError(Exception):
    """A group's processes cannot be measured; the text says why."""


class Group:
    """So many processes of a variant, started and joined.

    Args:
        variant: What they speak.
        size: How many there are.

    Attributes:
        started: When each one began to join, and had joined.

    Raises:
        BrokenGroupError: They did not come together.
    """

    def __init__(self, variant: Variant, size: int) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._lines: dict[int, Connection[Any, Any]] = {}
        self._directory = tempfile.TemporaryDirectory(prefix="bench-")
        self._join_limit = JOIN_LIMIT + size * JOIN_LIMIT_EACH
        try:
            self._spawn(variant, size)
            place = Place(self._directory.name, _free_port())
            self.started: list[Started] = self._order(
                Start(size, place), self._join_limit
            )
        except BaseException:
            self.close()
            raise

    def run(self, order: Run) -> list[Ran]:
        """Let all processes make the same calls; the answers by rank.

        Raises:
            BrokenGroupError: One of them failed, or it took too long.
        """
        ran: list[Ran] = self._order(order, CALL_LIMIT)
        return ran

    def close(self) -> None:
        """Let them leave, and see to it that they have ended."""
        for line in self._lines.values():
            with contextlib.suppress(OSError):
                line.send(Stop())
        deadline = time.monotonic() + STOP_LIMIT
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        for process in self._processes:
            if process.poll() is None:  # and with it, whom it has started
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for line in self._lines.values():
            line.close()
        self._directory.cleanup()

    def _spawn(self, variant: Variant, size: int) -> None:
        path = str(Path(self._directory.name) / "orders")
        worker = [sys.executable, "-m", "bench.worker", variant.name]
        if variant.launcher:
            launcher = [mpiexec() or "mpiexec", "-n", str(size)]
            commands = [[*launcher, *worker, "-1", path]]
        else:
            commands = [[*worker, str(rank), path] for rank in range(size)]
        environment = {**os.environ, **variant.environment}
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(size)
            listener.settimeout(0.2)
            for command in commands:
                with self._output(len(self._processes)).open("wb") as output:
                    self._processes.append(
                        subprocess.Popen(
                            command,
                            env=environment,
                            stdin=subprocess.DEVNULL,
                            stdout=output,
                            stderr=output,
                            start_new_session=True,
                        )
                    )
            self._accept(listener, size)

    def _accept(self, listener: socket.socket, size: int) -> None:
        deadline = time.monotonic() + self._join_limit
        while len(self._lines) < size:
            if any(process.poll() is not None for process in self._processes):
                raise self._ended()
            if time.monotonic() > deadline:
                raise BrokenGroupError("not all processes started in time")
            with contextlib.suppress(TimeoutError):
                accepted, _ = listener.accept()
                accepted.setblocking(True)
                line: Connection[Any, Any] = Connection(accepted.detach())
                self._lines[self._hear(line)] = line

    def _order(self, order: Start | Run, limit: float) -> list[Any]:
        answers: dict[int, object] = {}
        for line in self._lines.values():
            self._send(line, order)
        deadline = time.monotonic() + limit
        waiting = dict(self._lines)
        while waiting:
            left = max(0.0, deadline - time.monotonic())
            ready = wait(list(waiting.values()), left)
            if not ready:
                raise BrokenGroupError(f"{order} took more than {limit:.0f} s")
            for rank in [rank for rank, line in waiting.items() if line in ready]:
                answers[rank] = self._answer(waiting.pop(rank))
        return [answers[rank] for rank in sorted(answers)]

    def _send(self, line: Connection[Any, Any], order: Start | Run) -> None:
        try:
            line.send(order)
        except OSError:
            raise self._ended() from None

    def _answer(self, line: Connection[Any, Any]) -> object:
        answer = self._hear(line)
        if isinstance(answer, Failed):
            raise BrokenGroupError(answer.text.strip().splitlines()[-1])
        return answer

    def _hear(self, line: Connection[Any, Any]) -> Any:
        try:
            return line.recv()
        except (EOFError, OSError):
            raise self._ended() from None

    def _ended(self) -> BrokenGroupError:
        """A process has hung up: its last words, once it has ended."""
        deadline = time.monotonic() + STOP_LIMIT
        while time.monotonic() < deadline:
            for number, process in enumerate(self._processes):
                if process.poll() is not None:
                    text = self._output(number).read_text(errors="replace").strip()
                    last = text.splitlines()[-1] if text else f"{process.returncode}"
                    return BrokenGroupError(f"a process ended: {last}")
            time.sleep(0.01)
        return BrokenGroupError("a process has hung up, but does not end")

    def _output(self, number: int) -> Path:
        """What a process has printed."""
        return Path(self._directory.name) / f"output-{number}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port

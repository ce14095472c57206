"""Watches the replicas of a job and ends it as a whole.

A job goes through these stages::

    RUNNING    all is well, or some replicas have ended with success
    SETTLING   one failed: a moment for others to end by themselves, so that the
               one which failed first of its own is found
    ENDING     the others were told to end, by us or by a signal from outside
    KILLED     the grace is over, or somebody pressed Ctrl-C twice

SIGTERM and SIGHUP go to the replicas themselves, which may want to end their own
children in good order; Ctrl-C goes to the children too, as on a terminal. What a
replica leaves behind when it fails, or when the job is ending, is ended as well;
what a successful one leaves behind is left alone.
"""

from __future__ import annotations

import enum
import os
import signal
import time
from typing import TYPE_CHECKING

from zcoll.cli.processes import Replica, name_signal
from zcoll.cli.signals import FROM_TERMINAL, PASSED_ON

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from zcoll.cli.signals import Inbox

SETTLE = 0.5
"""Seconds from the first failure until the others are ended."""

SETTLE_TOLD = 2.5
"""The same, while all that failed were only told of another's failure."""

_ONE_PRESS = 0.2  # a wrapper may pass on the Ctrl-C that the terminal sent us too
_LOOK_AGAIN = 0.05  # nobody tells us when what a replica left behind has ended


class Stage(enum.Enum):
    """How far the job is; see the top of this module."""

    RUNNING = enum.auto()
    SETTLING = enum.auto()
    ENDING = enum.auto()
    KILLED = enum.auto()


def blame(failed: Sequence[Replica]) -> Replica | None:
    """Find the one that failed of its own: not merely told, then the earliest."""
    return min(failed, key=lambda replica: (replica.told, replica.ended), default=None)


class Supervisor:
    """Runs a job to its end.

    Args:
        replicas: All replicas, started.
        inbox: Where signals come in.
        report: The directory in which a replica leaves a file with its name when it
            fails only because the group has failed.
        grace: Seconds that the others have when one has failed, before they are
            killed.
        say: Tells the user something, a line at a time, without blocking.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        inbox: Inbox,
        *,
        report: Path,
        grace: float,
        say: Callable[[str], None],
    ) -> None:
        self._replicas = list(replicas)
        self._by_pid = {replica.process.pid: replica for replica in replicas}
        self._inbox = inbox
        self._report = report
        self._grace = grace
        self._say = say
        self._stage = Stage.RUNNING
        self._failed_at = 0.0
        self._kill_at: float | None = None
        self._culprit: Replica | None = None
        self._passed_on: dict[int, float] = {}

    def run(self) -> int:
        """Watch until all has ended.

        Returns:
            The exit code of the job: 0, or that of the replica to blame.
        """
        while self._unfinished():
            for signum in self._inbox.wait(self._patience()):
                if signum in PASSED_ON:
                    self._on_signal(signum)
            self._reap()
            self._advance(time.monotonic())
        return self._verdict()

    def _alive(self) -> list[Replica]:
        return [replica for replica in self._replicas if replica.alive]

    def _failed(self) -> list[Replica]:
        return [replica for replica in self._replicas if replica.failed]

    def _unfinished(self) -> bool:
        if self._alive() or self._stage is Stage.SETTLING:
            return True
        return self._stage is Stage.ENDING and any(
            replica.left_behind() for replica in self._replicas
        )

    def _patience(self) -> float | None:
        """Say how long to wait for signals (SIGCHLD among them), in seconds."""
        if self._stage is Stage.SETTLING:
            return max(0.0, self._settled_at() - time.monotonic())
        if self._stage is Stage.ENDING and self._kill_at is not None:
            rest = max(0.0, self._kill_at - time.monotonic())
            return rest if self._alive() else min(rest, _LOOK_AGAIN)
        return None

    def _settled_at(self) -> float:
        only_told = all(replica.told for replica in self._failed())
        return self._failed_at + (SETTLE_TOLD if only_told else SETTLE)

    def _reap(self) -> None:
        """Reap every child that has ended, orphans that we inherited included."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            replica = self._by_pid.get(pid)
            if replica is not None:
                ending = self._stage in (Stage.ENDING, Stage.KILLED)
                replica.reaped(status, self._report, ending=ending)
                if ending:
                    killed = self._stage is Stage.KILLED
                    rest = signal.SIGKILL if killed else signal.SIGTERM
                    replica.send(rest, group=True)

    def _advance(self, now: float) -> None:
        """Go on to the next stage when its time has come."""
        failed = self._failed()
        if self._stage is Stage.RUNNING and failed:
            self._stage, self._failed_at = Stage.SETTLING, now
        if self._stage is Stage.SETTLING and (
            not self._alive() or now >= self._settled_at()
        ):
            self._end()
        if self._stage is Stage.ENDING:
            if self._kill_at is None and (failed or not self._alive()):
                self._kill_at = now + self._grace
            if self._kill_at is not None and now >= self._kill_at:
                self._kill(f"not ended within {self._grace:g} s")

    def _end(self) -> None:
        """Tell which replica has failed, and end the others."""
        self._culprit = blame(self._failed())
        assert self._culprit is not None
        text = self._culprit.describe()
        if self._culprit.told:
            text += ", told of a failure elsewhere"
        alive = self._alive()
        self._say(f"{text}; ending the others" if alive else text)
        self._stage = Stage.ENDING
        self._kill_at = time.monotonic() + self._grace
        for replica in self._replicas:
            replica.send(signal.SIGTERM, group=False)

    def _on_signal(self, signum: int) -> None:
        """Pass a signal on, once; kill at the second Ctrl-C."""
        now = time.monotonic()
        first = self._passed_on.setdefault(signum, now)
        if first != now:
            if signum == signal.SIGINT and now - first > _ONE_PRESS:
                self._kill("Ctrl-C again")
            return
        if self._stage is Stage.SETTLING:
            self._end()
        if self._stage is Stage.RUNNING:
            self._stage = Stage.ENDING
            again = " (again: kill them)" if signum == signal.SIGINT else ""
            self._say(f"{name_signal(signum)}: passed on to the replicas{again}")
        for replica in self._replicas:
            replica.send(signum, group=signum in FROM_TERMINAL)

    def _kill(self, why: str) -> None:
        alive = self._alive()
        if alive and self._stage is not Stage.KILLED:
            names = ", ".join(replica.name for replica in alive)
            self._say(f"{why}: killing replica{'s' * (len(alive) > 1)} {names}")
        self._stage = Stage.KILLED
        for replica in self._replicas:
            replica.killed = replica.killed or replica.alive
            replica.send(signal.SIGKILL, group=True)

    def _verdict(self) -> int:
        """Choose the exit code; tell who failed otherwise than by interruption."""
        if self._culprit is not None:
            return self._culprit.exit_code
        failed = self._failed()
        if not failed:
            return 0
        interrupted = 128 + next(iter(self._passed_on))
        own = [replica for replica in failed if not replica.killed]
        culprit = blame(own)
        if culprit is None or interrupted in [replica.exit_code for replica in own]:
            return interrupted
        self._say(culprit.describe())
        return culprit.exit_code

"""The processes of a job: how one is started, signalled and accounted for.

Each replica leads a session of its own. So a Ctrl-C on the terminal reaches it
once, through the launcher, and what it has started itself can be ended with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, where Linux lets us.

    Then what a replica leaves behind is reaped here, as by the first process of a
    container, and does not linger as a zombie that looks alive.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _dying_with_parent() -> Callable[[], None] | None:
    """Make what a new child calls, before exec, to be killed when we are."""
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it was too late
            os.kill(os.getpid(), signal.SIGKILL)

    return tie


@dataclass(slots=True, eq=False)
class Replica:
    """One process of the job, led by the launcher.

    Attributes:
        name: Its rank, or "auto-0" and so on where rank 0 gives the ranks.
        process: Its process; nobody but :meth:`reaped` sets the exit code.
        ended: When it was reaped, on the monotonic clock.
        told: Whether it failed only because the group had failed.
        killed: Whether the launcher killed it.
    """

    name: str
    process: subprocess.Popen[bytes]
    ended: float = 0.0
    told: bool = False
    killed: bool = False
    _left_behind: bool = field(default=False, init=False)

    @property
    def alive(self) -> bool:
        """Whether it has not been reaped."""
        return self.process.returncode is None

    @property
    def failed(self) -> bool:
        """Whether it ended with anything but success."""
        return self.process.returncode not in (None, 0)

    @property
    def exit_code(self) -> int:
        """Its exit code as a shell gives it: 128 + N for signal N."""
        code = self.process.returncode or 0
        return 128 - code if code < 0 else code

    def reaped(self, status: int, report: Path, *, ending: bool) -> None:
        """Note how it ended, from the status that ``waitpid`` gave.

        What it left behind is ours to end if it failed or the job is ending;
        otherwise that was its intention.
        """
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.ended = time.monotonic()
        self.told = (report / self.name).exists()
        self._left_behind = (self.failed or ending) and self._signal_group(0)

    def left_behind(self) -> bool:
        """Say whether it has ended and processes that it started have not."""
        # Asked again only while the last answer was yes: a group that was seen
        # empty is gone, and its number may be anybody's.
        self._left_behind = self._left_behind and self._signal_group(0)
        return self._left_behind

    def send(self, signum: int, *, group: bool) -> None:
        """Send a signal to the replica, or to all that it has started as well.

        If it has ended, what it left behind gets the signal.
        """
        if self.alive and not group:
            # It is not reaped yet, so the number is still its own. It may run
            # as another user by now, who is none of our business.
            with contextlib.suppress(PermissionError):
                os.kill(self.process.pid, signum)
        elif self.alive or self.left_behind():
            self._signal_group(signum)

    def describe(self) -> str:
        """Say who it is and how it ended, for people."""
        who = f"replica {self.name} (pid {self.process.pid})"
        code = self.process.returncode or 0
        if code >= 0:
            how = f"exited with code {code}"
        else:
            how = f"was killed by {name_signal(-code)}"
            if -code == signal.SIGKILL and not self.killed:
                how += " (out of memory? The kernel's log would say so)"
        return f"{who} {how}"

    def _signal_group(self, signum: int) -> bool:
        """Send a signal to its process group; say whether there was one."""
        try:
            os.killpg(self.process.pid, signum)
        except ProcessLookupError:
            return False
        except PermissionError:  # macOS says so of a group of zombies
            return False
        return True


def start(
    name: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    inherited: Sequence[int] = (),
) -> Replica:
    """Start a replica, with pipes for its output.

    Rank 0 has the launcher's standard input, the others have none. No thread may
    run in this process yet, because Python code runs in the forked child.

    Args:
        name: Its name, as in :class:`Replica`.
        command: What to execute.
        environment: All of its environment.
        inherited: Descriptors that it gets beside the standard ones.

    Raises:
        OSError: The process cannot be started.
    """
    process = subprocess.Popen(  # noqa: S603 - what the user asked us to run
        command,
        bufsize=0,
        env=environment,
        stdin=None if name == "0" else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=inherited,
        start_new_session=True,
        preexec_fn=_dying_with_parent(),  # noqa: PLW1509 - no thread runs yet
    )
    return Replica(name, process)


def name_signal(signum: int) -> str:
    """Name a signal: ``SIGTERM``, or ``signal 40`` if it has no name."""
    with contextlib.suppress(ValueError):
        return signal.Signals(signum).name
    return f"signal {signum}"


def take_pipes(replica: Replica) -> tuple[int, int]:
    """Hand over the reading ends of a replica's output and error pipes."""
    out, err = replica.process.stdout, replica.process.stderr
    assert out is not None
    assert err is not None
    fds = os.dup(out.fileno()), os.dup(err.fileno())
    out.close()
    err.close()
    return fds

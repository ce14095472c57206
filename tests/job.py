"""Jobs of real processes, started by ``zcoll run``.

The scripts are in ``tests/processes/jobs``. What a replica finds out it hands to
``report.report``; the test gets it as :attr:`Finished.reports`, by rank.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parent.parent
JOBS = ROOT / "tests" / "processes" / "jobs"


@dataclass(frozen=True)
class Finished:
    """How a program ended, and what it said."""

    code: int
    output: str
    errors: str
    reports: dict[int, Any]

    def check(self) -> Finished:
        """Check that all went well."""
        assert self.code == 0, f"exit status {self.code}\n{self.output}\n{self.errors}"
        return self


def clean_environment(**more: str) -> dict[str, str]:
    """Copy the environment without what a launcher has set."""
    prefixes = ("ZCOLL_", "ADAPTDL_", "COLOUR", "FORCE_COLOR")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(prefixes)}
    path = [str(ROOT), *filter(None, [kept.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(path), **more}


def run_program(
    command: Sequence[str],
    results: Path,
    environment: Mapping[str, str] | None = None,
    timeout: float = 45,
    cwd: Path | None = None,
) -> Finished:
    """Run a program to its end, and end everything that it started if it hangs."""
    with subprocess.Popen(
        command,
        env=clean_environment(TEST_RESULTS=str(results), **(environment or {})),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=cwd,
    ) as process:
        try:
            output, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            _end(process)
            output, errors = process.communicate()
            raise AssertionError(
                f"{command} did not end within {timeout:g} s\n{output}\n{errors}"
            ) from None
        except BaseException:
            _end(process)
            raise
    reports = {
        int(path.stem): json.loads(path.read_text()) for path in results.glob("*.json")
    }
    return Finished(process.returncode, output, errors, reports)


def _end(process: subprocess.Popen[str]) -> None:
    """End a program with the replicas that it started."""
    process.send_signal(signal.SIGTERM)  # zcoll run passes it on to its replicas
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(8)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def run_job(
    script: Path | str,
    num_replicas: int,
    results: Path,
    *arguments: str,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    timeout: float = 45,
) -> Finished:
    """Run a script in several replicas; a bare name is one of the jobs here."""
    path = JOBS / script if isinstance(script, str) else script
    command = [sys.executable, "-m", "zcoll", "run", "-n", str(num_replicas)]
    return run_program(
        [*command, *options, "--", str(path), *arguments], results, environment, timeout
    )

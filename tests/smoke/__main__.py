"""Runs a job and its faults in containers, or as processes: ``tools/smoke``."""

from __future__ import annotations

import argparse
import contextlib
import secrets
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from engine.find import compose_command, docker
from engine.private import EngineError
from smoke.checks import CHECKS
from smoke.containers import Containers
from smoke.processes import Processes
from smoke.stage import CheckFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from smoke.stage import Stage


def main() -> int:
    """Make the checks.

    Returns:
        The exit status: 0 if all have passed.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    names = [check.__name__ for check in CHECKS]
    parser = argparse.ArgumentParser(prog="tools/smoke", description=__doc__)
    parser.add_argument("--local", action="store_true", help="without containers")
    parser.add_argument("--only", choices=names, action="append", help="this check")
    options = parser.parse_args()
    chosen = [check for check in CHECKS if check.__name__ in (options.only or names)]
    start = time.monotonic()
    try:
        with contextlib.ExitStack() as stack:
            stage = stack.enter_context(local() if options.local else containers())
            passed = run(stage, chosen)
    except (EngineError, CheckFailedError) as error:
        say(f"smoke: {error}")
        return 1
    say(f"{passed} in {time.monotonic() - start:.0f} s, everything removed")
    return 0 if "0 failed" in passed else 1


@contextlib.contextmanager
def containers() -> Iterator[Stage]:
    """Find or start a Docker, and build the image."""
    start = time.monotonic()
    with docker() as environment, secret_file() as secret:
        stage = Containers(environment, compose_command(environment), secret)
        say(f"{time.monotonic() - start:6.1f} s  an engine is there")
        start = time.monotonic()
        with stage.image():
            say(f"{time.monotonic() - start:6.1f} s  the image is built")
            yield stage


@contextlib.contextmanager
def local() -> Iterator[Stage]:
    """Use this machine's processes."""
    with secret_file() as secret:
        yield Processes(secret, secret.parent)


@contextlib.contextmanager
def secret_file() -> Iterator[Path]:
    """Make a secret that the containers' user can read, and others here cannot."""
    with tempfile.TemporaryDirectory(prefix="zcoll-smoke-") as folder:
        path = Path(folder) / "secret"
        path.write_text(secrets.token_urlsafe(32))
        path.chmod(0o644)
        yield path


def run(stage: Stage, checks: Sequence[Callable[[Stage], str]]) -> str:
    """Make checks, and say what they have found and how long they took."""
    passed = failed = 0
    for check in checks:
        name, start = check.__name__.replace("_", " "), time.monotonic()
        if check.__name__ in stage.lacks:
            say(f"   -     {name}: not here, {stage.lacks[check.__name__]}")
            continue
        try:
            found = check(stage)
        except CheckFailedError as error:
            failed, found = failed + 1, f"FAILED: {error}"
        else:
            passed += 1
        finally:
            stage.clear()
        say(f"{time.monotonic() - start:6.1f} s  {name}: {found}")
    return f"{passed} passed, {failed} failed"


def say(line: str) -> None:
    """Tell the user."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())

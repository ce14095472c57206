"""Which Docker to use: the one that is there, or a private one."""

from __future__ import annotations

import configparser
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from engine.private import EngineError, PrivateEngine

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent.parent
WHEELS = "docker/wheels"  # below the root, where a build finds them
NEEDED = {
    "dockerd": "docker.io",
    "docker": "docker.io",
    "docker-compose": "docker-compose",
    "iptables": "iptables",
    "ip": "iproute2",
}


@contextlib.contextmanager
def docker() -> Iterator[dict[str, str]]:
    """Find a Docker, or start one for the time of the block.

    Yields:
        The variables by which Docker's programs find it, and a build its wheels.

    Raises:
        EngineError: There is none, and none can be started.
    """
    if _answers():
        yield {}
        return
    _install()
    if _answers():  # the package has started one
        yield {}
        return
    with (
        tempfile.TemporaryDirectory(prefix="zcoll-engine-") as folder,
        _wheels(),
        PrivateEngine(Path(folder) / "engine") as engine,
    ):
        yield engine.environment | {"WHEELS": WHEELS}


def compose_command(environment: dict[str, str]) -> list[str]:
    """The words by which compose is called: its second version, or its first."""
    version = ["docker", "compose", "version"]
    if shutil.which("docker") and _works(version, environment):
        return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    raise EngineError("neither 'docker compose' nor 'docker-compose' is there")


def _answers() -> bool:
    return shutil.which("docker") is not None and _works(["docker", "info"], {})


def _works(command: list[str], environment: dict[str, str]) -> bool:
    try:
        done = subprocess.run(
            command,
            env=os.environ | environment,
            capture_output=True,
            timeout=20,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    # The client is content when the server is not there, and only says so.
    return done.returncode == 0 and b"Cannot connect" not in done.stdout + done.stderr


def _install() -> None:
    """Install what a private engine needs, as root on Debian."""
    missing = sorted(
        {pkg for program, pkg in NEEDED.items() if not shutil.which(program)}
    )
    if os.geteuid() != 0 or not sys.platform.startswith("linux"):
        raise EngineError(
            "no Docker answers here, and a private one needs root on Linux: start"
            " Docker, or try without containers: tools/smoke --local"
        )
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise EngineError(f"no Docker is here: install {', '.join(missing)}")
    print(f"apt-get install {' '.join(missing)}", flush=True)
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    _run(["apt-get", "-qq", "update"], quiet)
    _run(
        ["apt-get", "-qq", "install", "-y", "--no-install-recommends", *missing], quiet
    )


def _run(command: list[str], environment: dict[str, str] | None = None) -> None:
    """Run what must succeed.

    Raises:
        EngineError: It does not; with what it has said.
    """
    done = subprocess.run(
        command,
        env=os.environ | (environment or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise EngineError(f"{' '.join(command)}:\n{done.stdout[-2000:]}")


@contextlib.contextmanager
def _wheels() -> Iterator[None]:
    """Collect what a build without a network installs, for the time of the block.

    Raises:
        EngineError: They cannot be had.
    """
    folder = ROOT / WHEELS
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    needed = config["options"]["install_requires"].split()
    builder = re.search(
        r'requires = \["(.*?)"\]', (ROOT / "pyproject.toml").read_text()
    )
    assert builder is not None
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder)]
    try:
        _run([*pip, "--only-binary", ":all:", *needed, builder.group(1)])
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)

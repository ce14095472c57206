"""A Docker engine of one's own, which leaves nothing behind.

``dockerd`` on a machine as it is makes a bridge, firewall rules and turns IP
forwarding on, and leaves all of it there. Here it runs in network, mount and process
namespaces of its own, with its data in a directory that is removed at the end. It
needs root and Linux, and it has no way out: nothing can be pulled.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import IO

BASE_IMAGE = "python:3.11-slim"
DNS = "198.51.100.53"  # an address for documentation, so nobody else's
START_LIMIT = 30.0  # seconds
STOP_LIMIT = 15.0  # seconds until it is killed
HERE = Path(__file__).parent

_INSIDE = """
ip link set lo up
ip address add "$1/32" dev lo
"$2" "$3" "$1" &
shift 3
exec dockerd "$@"
"""


class EngineError(Exception):
    """The engine does not start, or cannot be used."""


class PrivateEngine:
    """Runs within a ``with`` block, and has the base image when it is entered.

    If this process is killed, the kernel ends the engine and all its containers.

    Args:
        folder: Where it keeps its data: an empty directory, removed at the end.

    Attributes:
        environment: The variables by which Docker's programs find it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._group = f"zcoll-engine-{os.getpid()}"
        self._socket = folder / "docker.sock"
        self._process: subprocess.Popen[bytes] | None = None
        self.environment = {
            "DOCKER_HOST": f"unix://{self._socket}",
            "DOCKER_CONFIG": str(folder / "config"),
            "DOCKER_BUILDKIT": "0",  # BuildKit asks a registry for the base image
        }

    def __enter__(self) -> PrivateEngine:
        try:
            self._start()
            self._make_base_image()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _docker(
        self, *words: str, stdin: IO[bytes] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a docker command, and wait for it."""
        return subprocess.run(
            ["docker", *words],
            env=os.environ | self.environment,
            stdin=stdin or subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def _start(self) -> None:
        (self._folder / "config").mkdir(parents=True)
        log = self._folder / "dockerd.log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    *("setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount"),
                    *("--pid", "--fork", "--kill-child", "--mount-proc"),
                    *("sh", "-euc", _INSIDE, "sh", DNS),
                    *(sys.executable, str(HERE / "no_names.py")),
                    *("--data-root", str(self._folder / "data")),
                    *("--exec-root", str(self._folder / "run")),
                    *("--pidfile", str(self._folder / "dockerd.pid")),
                    *("--host", f"unix://{self._socket}"),
                    *("--exec-opt", "native.cgroupdriver=cgroupfs"),
                    *("--cgroup-parent", f"/{self._group}"),
                    *("--dns", DNS),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # a Ctrl-C is for us, who stop it in order
            )
        deadline = time.monotonic() + START_LIMIT
        while self._docker("version").returncode != 0:
            if self._process.poll() is not None or time.monotonic() > deadline:
                last = log.read_text(errors="replace").splitlines()[-20:]
                raise EngineError("dockerd does not start:\n" + "\n".join(last))
            time.sleep(0.1)

    def _make_base_image(self) -> None:
        path = "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin"
        changes = [f"ENV PATH={path}", "ENV LANG=C.UTF-8", 'CMD ["python3"]']
        options = [word for change in changes for word in ("--change", change)]
        with subprocess.Popen(
            [sys.executable, str(HERE / "base_image.py")], stdout=subprocess.PIPE
        ) as maker:
            done = self._docker("import", *options, "-", BASE_IMAGE, stdin=maker.stdout)
        if maker.returncode or done.returncode:
            raise EngineError(f"the base image cannot be made: {done.stderr}")

    def stop(self) -> None:
        """End it and all that it runs, and remove what it has made."""
        if self._process is not None:
            self._thaw()
            self._end(self._process)
            self._thaw()
            self._process = None
        for group in glob.glob(f"/sys/fs/cgroup/*/{self._group}"):
            _remove_group(group)
        _remove_group(f"/sys/fs/cgroup/{self._group}")
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self, outer: subprocess.Popen[bytes]) -> None:
        """Ask dockerd to end, which is the outer process's only child; then kill it."""
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
        with contextlib.suppress(OSError):
            for pid in children.read_text().split():
                os.kill(int(pid), signal.SIGTERM)
        try:
            outer.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            outer.kill()  # and the kernel kills its child, with all of its namespace
            outer.wait()

    def _thaw(self) -> None:
        """Let paused containers run: otherwise even SIGKILL does not end them."""
        states = {"freezer.state": "THAWED", "cgroup.freeze": "0"}
        for name, running in states.items():
            for pattern in (f"*/{self._group}/*/{name}", f"{self._group}/*/{name}"):
                for path in glob.glob(f"/sys/fs/cgroup/{pattern}"):
                    with contextlib.suppress(OSError):
                        Path(path).write_text(running)


def _remove_group(path: str) -> None:
    """Remove a control group and those below it; processes there have ended."""
    for folder, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)

"""The stage of containers: the project's own compose files, as a user has them."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoke.stage import LIMIT, CheckFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = Path(__file__).parent.parent.parent
FILES = ["docker/compose.yml", "docker/compose.smoke.yml"]
JOBS = ROOT / "tests" / "smoke" / "jobs"
SECRET = "/run/secrets/zcoll"
STOP = "/tmp/stop"
BUILD_LIMIT = 600.0  # seconds
IMAGE = "zcoll-smoke"


class Container:
    """One container; a :class:`~smoke.stage.Member`."""

    def __init__(self, docker: Docker, identifier: str) -> None:
        self._docker = docker
        self._id = identifier
        facts = self._inspect()
        self.name: str = facts["Name"].lstrip("/")
        self.host: str = facts["Config"]["Hostname"]
        self._end: dict[str, Any] | None = None
        self._networks: dict[str, Any] = facts["NetworkSettings"]["Networks"]

    def _inspect(self) -> dict[str, Any]:
        (facts,) = json.loads(self._docker("inspect", self._id))
        return dict(facts)

    def _state(self) -> dict[str, Any]:
        """What docker says of its process; once it has ended, that stays."""
        if self._end is None:
            state = dict(self._inspect()["State"])
            if state["Status"] != "exited":
                return state
            self._end = state
        return self._end

    def log(self) -> str:
        """All that it has printed."""
        return self._docker("logs", self._id)

    def exit_code(self) -> int | None:
        """How it ended; None if it has not."""
        state = self._state()
        return int(state["ExitCode"]) if state["Status"] == "exited" else None

    def ended_at(self) -> float:
        """When it ended, in seconds since the epoch."""
        day, digits = re.findall(r"(.*)\.(\d+)Z", self._state()["FinishedAt"])[0]
        start = datetime.datetime.fromisoformat(f"{day}+00:00")
        return start.timestamp() + float(f"0.{digits}")

    def kill(self) -> None:
        """End it without a word."""
        self._docker("kill", self._id)

    def pause(self) -> None:
        """Stop all of its processes."""
        self._docker("pause", self._id)

    def resume(self) -> None:
        """Let them go on."""
        self._docker("unpause", self._id)

    def cut(self) -> None:
        """Take its network away."""
        for network in self._networks:
            self._docker("network", "disconnect", network, self._id)

    def mend(self) -> None:
        """Give its network back, and its name there."""
        for network, facts in self._networks.items():
            aliases = [word for each in facts["Aliases"] for word in ("--alias", each)]
            self._docker("network", "connect", *aliases, network, self._id)


class Docker:
    """Runs docker's commands.

    Args:
        environment: Variables beside this process's own.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)

    def __call__(self, *words: str) -> str:
        """Run a command that must succeed; its output and errors together."""
        code, text = self.run(["docker", *words])
        if code:
            raise CheckFailedError(
                f"docker {' '.join(words)} exits with {code}:\n{text}"
            )
        return text

    def run(self, command: Sequence[str], limit: float = LIMIT) -> tuple[int, str]:
        """Run a command: its exit code, and its output and errors together."""
        try:
            done = subprocess.run(
                command,
                env=os.environ | self.environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise CheckFailedError(
                f"{' '.join(command)} takes over {limit:g} s"
            ) from None
        return done.returncode, done.stdout


class Containers:
    """A compose project; a :class:`~smoke.stage.Stage`.

    Args:
        environment: The variables by which Docker is found, and a build its wheels.
        compose: The words by which compose is called.
        secret: A file with the group's secret, which all users can read.
    """

    def __init__(
        self, environment: Mapping[str, str], compose: Sequence[str], secret: Path
    ) -> None:
        self.lacks: dict[str, str] = {}
        self._project = f"zcoll-smoke-{os.getpid()}"
        self._secret = secret
        self._docker = Docker({**environment, "ZCOLL_SECRET_FILE": str(secret)})
        files = [word for file in FILES for word in ("-f", file)]
        self._compose = [*compose, "-p", self._project, *files]

    @contextlib.contextmanager
    def image(self) -> Iterator[None]:
        """Build the image, for the time of the block."""
        self._call("build", limit=BUILD_LIMIT)
        yield
        self._docker("image", "rm", IMAGE)

    def prepare(self, job: str, replicas: int) -> None:
        """Say what is to be run."""
        self._docker.environment |= {"JOB": job, "REPLICAS": str(replicas)}

    def start(self) -> list[Container]:
        """Start it as a user would. Rank 0 is the first."""
        self._call("up", "-d")
        return [*self._members("rank0"), *self._members("replica")]

    def start_rank_0(self) -> Container:
        """Start rank 0 alone."""
        self._call("up", "-d", "--no-deps", "rank0")
        (zero,) = self._members("rank0")
        return zero

    def start_replicas(self, count: int) -> list[Container]:
        """Start replicas, without waiting for rank 0, until there are so many."""
        scale = f"replica={count}"
        self._call(
            "up", "-d", "--no-deps", "--no-recreate", "--scale", scale, "replica"
        )
        return self._members("replica")

    def ask(self, *options: str, secret: bool) -> tuple[int, str]:
        """Let ``zcoll ping`` ask the group, in a container of its own."""
        known = [
            *("--volume", f"{self._secret}:{SECRET}:ro"),
            *("--env", f"ZCOLL_SECRET_FILE={SECRET}"),
        ]
        return self._docker.run(
            [
                *("docker", "run", "--rm", "--network", f"{self._project}_default"),
                *(known if secret else []),
                *(IMAGE, "ping", *options, "rank0:29500"),
            ]
        )

    def finish(self) -> None:
        """Let the smoke job come to its end."""
        (zero,) = self._identifiers("rank0")
        self._docker("exec", zero, "touch", STOP)

    def flood(self) -> Container:
        """Let a stranger bother rank 0."""
        started = self._docker(
            *("run", "--detach", "--network", f"{self._project}_default"),
            *("--label", f"com.docker.compose.project={self._project}"),
            *("--volume", f"{JOBS}:/smoke:ro", "--entrypoint", "python", IMAGE),
            *("/smoke/flood.py", "rank0", "29500"),
        )
        return Container(self._docker, started.split()[-1])

    def rounds_job(self) -> str:
        """The smoke job, as ``prepare`` takes it."""
        return f"/smoke/rounds.py {STOP}"

    def wordcount_job(self) -> str:
        """The example that counts words, likewise."""
        return "wordcount.py"

    def count_alone(self) -> str:
        """How many words one process counts."""
        text = self._docker("run", "--rm", IMAGE)
        found = re.search(r"1 replica counted ([\d,]+) words", text)
        return found[1] if found else text

    def clear(self) -> None:
        """End everything, and forget it."""
        containers = self._identifiers()
        if containers:
            self._docker("rm", "--force", "--volumes", *containers)
        label = f"label=com.docker.compose.project={self._project}"
        networks = self._docker("network", "ls", "--quiet", "--filter", label).split()
        if networks:
            self._docker("network", "rm", *networks)

    def _call(self, *words: str, limit: float = LIMIT) -> None:
        code, text = self._docker.run([*self._compose, *words], limit)
        if code:
            raise CheckFailedError(
                f"compose {' '.join(words)} exits with {code}:\n{text}"
            )

    def _identifiers(self, service: str | None = None) -> list[str]:
        labels = [f"com.docker.compose.project={self._project}"]
        if service is not None:
            labels.append(f"com.docker.compose.service={service}")
        filters = [word for each in labels for word in ("--filter", f"label={each}")]
        return self._docker("ps", "--all", "--quiet", *filters).split()

    def _members(self, service: str) -> list[Container]:
        found = [Container(self._docker, each) for each in self._identifiers(service)]
        return sorted(found, key=lambda container: container.name)

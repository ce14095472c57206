"""What the checks need of the place where a job runs: containers, or processes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LIMIT = 60.0  # seconds for anything that takes a few on a machine that is not busy
PAUSE = 0.2  # seconds between two looks


class CheckFailedError(Exception):
    """A check has found something else than it should."""


class Member(Protocol):
    """One replica's container or process.

    Attributes:
        name: What texts call it.
        host: The name of its host, as zcoll sees it.
    """

    name: str
    host: str

    def log(self) -> str:
        """All that it has printed."""

    def exit_code(self) -> int | None:
        """How it ended; None if it has not."""

    def ended_at(self) -> float:
        """When it ended, in seconds since the epoch."""

    def kill(self) -> None:
        """End it without a word."""

    def pause(self) -> None:
        """Stop it, so that it does not notice."""

    def resume(self) -> None:
        """Let it go on."""

    def cut(self) -> None:
        """Take its network away."""

    def mend(self) -> None:
        """Give its network back."""


class Stage(Protocol):
    """A place for one job after the other.

    Attributes:
        lacks: The names of checks that cannot be made here, and why.
    """

    lacks: dict[str, str]

    def prepare(self, job: str, replicas: int) -> None:
        """Say what is to be run: words for ``zcoll run``, beside rank 0 how many."""

    def start(self) -> Sequence[Member]:
        """Start it as a user would. Rank 0 is the first."""

    def start_rank_0(self) -> Member:
        """Start rank 0 alone."""

    def start_replicas(self, count: int) -> Sequence[Member]:
        """Start replicas, without waiting for rank 0, until there are so many."""

    def ask(self, *options: str, secret: bool) -> tuple[int, str]:
        """Let ``zcoll ping`` ask the group from outside: exit code and output."""

    def finish(self) -> None:
        """Let the smoke job come to its end."""

    def flood(self) -> Member:
        """Let a stranger bother rank 0."""

    def rounds_job(self) -> str:
        """The smoke job, as ``prepare`` takes it."""

    def wordcount_job(self) -> str:
        """The example that counts words, likewise."""

    def count_alone(self) -> str:
        """How many words one process counts, as the example prints it."""

    def clear(self) -> None:
        """End everything, and forget it."""


def wait_until(condition: Callable[[], bool], what: str, limit: float = LIMIT) -> None:
    """Wait for something.

    Raises:
        CheckFailedError: It has not happened within the limit (in seconds).
    """
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            raise CheckFailedError(f"not within {limit:g} s: {what}")
        time.sleep(PAUSE)


def wait_for_end(members: Sequence[Member], limit: float = LIMIT) -> None:
    """Wait until all of these have ended."""
    names = ", ".join(member.name for member in members)
    wait_until(
        lambda: all(member.exit_code() is not None for member in members),
        f"the end of {names}",
        limit,
    )


def expect(condition: bool, text: str) -> None:
    """Check something.

    Raises:
        CheckFailedError: It is not so.
    """
    if not condition:
        raise CheckFailedError(text)

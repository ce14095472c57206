"""What stands for a process: it can be stopped for a while, and killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulation.simulated_group import Group


class Process:
    """A process.

    Attributes:
        rank: The rank that it has.
        group: The group, and the clock.
        dead: Whether it is gone.
        stopped: Whether it does not run for now.
        closed: Whether it has left the group, and closed everything.
    """

    def __init__(self, rank: int, group: Group) -> None:
        self.rank = rank
        self.group = group
        self.dead = self.stopped = self.closed = False
        self._held_up: list[Callable[[], None]] = []  # while it was stopped

    @property
    def running(self) -> bool:
        """Whether its process does anything at the moment."""
        return not (self.dead or self.stopped or self.closed)

    @property
    def now(self) -> float:
        """The time."""
        return self.group.clock.now

    def when_awake(self, job: Callable[[], None]) -> None:
        """Do this now, or when the process runs again, if it ever does."""
        if self.running:
            job()
        elif self.stopped and not self.dead:
            self._held_up.append(job)

    def stop(self, seconds: float) -> None:
        """Stop the process for a while."""
        self.group.trace(f"{self.rank} is stopped for {seconds:.2f} s")
        self.stopped = True
        self.group.clock.after(seconds, self._resume)

    def _resume(self) -> None:
        if self.dead:
            return
        self.group.trace(f"{self.rank} runs again")
        self.stopped = False
        if self.group.random.random() < 0.5:
            self.step()  # it was stopped after its look at what has arrived
        jobs, self._held_up = self._held_up, []
        for job in jobs:
            self.when_awake(job)

    def kill(self) -> None:
        """End the process at once."""
        self.group.trace(f"{self.rank} is killed")
        self.dead = True
        self.disconnect()

    def disconnect(self, linger: float = 0.0) -> None:
        """Lose the connections of a process that has ended."""
        raise NotImplementedError

    def step(self) -> None:
        """Time has passed."""
        raise NotImplementedError

"""What goes wrong in a simulated group: when, where and for how long."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from programs.model import FOLDING
from programs.program import Call, Leave

from zcoll.errors import AbortedError, MismatchError, ReplicaExitedError
from zcoll.wire import Kind

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from programs.program import Step
    from simulation.simulated_group import Group

    from zcoll.errors import GroupError

HARMLESS = 1.0  # seconds of trouble at a stretch that every group survives
STAY = 30.0  # seconds for which a program that has no more calls may live on
GAP = 0.6  # seconds between troubles that are not one stretch

# What can go wrong, and how often beside the others.
WEIGHTS = {
    "cut": 16,
    "long cut": 1,
    "delay": 6,
    "short stop": 6,
    "long stop": 3,
    "kill": 3,
    "restart": 3,
    "abort": 2,
    "exit": 2,
    "mismatch": 2,
}

# Messages at which something may happen: all that a call's way consists of.
MOMENTS = (
    Kind.HELLO,
    Kind.WELCOME,
    Kind.READY,
    Kind.CONTRIBUTE,
    Kind.CONTRIBUTE,
    Kind.GRANT,
    Kind.CHUNK,
    Kind.CHUNK,
    Kind.CHUNK,
    Kind.OUTCOME,
    Kind.OUTCOME,
    Kind.FAILURE,
    Kind.OVER,
    Kind.BYE,
    Kind.ACK,
    Kind.BEACON,
    Kind.QUERY,
    Kind.STACK,
)


@dataclasses.dataclass(frozen=True)
class Trouble:
    """A while in which a replica, or everybody, could not be reached.

    Attributes:
        start: When it began, in virtual seconds.
        end: When it ended.
        cut: Whether a connection was lost in it.
        rank: Whose it was; 0 is everybody's.
    """

    start: float
    end: float
    cut: bool
    rank: int


class Faults:
    """Draws the faults of a seed, injects them, and knows what they excuse.

    Attributes:
        drawn: The kinds of what was drawn.
        done: The kinds of what has happened.
        leaver: Who leaves without a teardown, or None.
        mistake: The step in which somebody makes another call, or None.
        aborted: Who has aborted the group.
    """

    def __init__(self, random: random.Random, group: Group) -> None:
        self.drawn: set[str] = set()
        self.done: set[str] = set()
        self.leaver: int | None = None
        self.mistake: int | None = None
        self.aborted: set[int] = set()
        self._random = random
        self._group = group
        self._troubles: list[Trouble] = []

    def inject(self) -> None:
        """Draw some faults, and have them happen at their times."""
        for step in self._group.plan.steps:
            if isinstance(step, Call) and step.flaw:
                self._group.counts[f"fault: {step.flaw}"] += 1
        for node in self._group.nodes:
            node.stays = self._random.choice((0.0,) * 9 + (STAY,))
        if self._group.size > 1 and self._random.random() < 0.9:
            count = self._random.choice((1, 2, 2, 3, 4, 6, 10))
            for kind in self._random.choices(
                list(WEIGHTS), list(WEIGHTS.values()), k=count
            ):
                self._draw(kind)

    def _draw(self, kind: str) -> None:
        rank = self._random.randrange(self._group.size)
        self._group.trace(f"fault: {kind} of {rank}")
        self.drawn.add(kind)
        if kind == "exit":
            self._plan_exit(rank)
        elif kind == "mismatch":
            self._plan_mismatch(rank)
        else:
            spoke = rank or self._random.randrange(1, self._group.size)
            self._schedule(rank, spoke, lambda: self._happen(kind, rank, spoke))

    def _schedule(self, rank: int, spoke: int, job: Callable[[], None]) -> None:
        """At a random time, or before or after a random message is taken in."""
        at_once = self._random.random() < 0.5
        if self._random.random() < 0.3:
            self._group.clock.at(self._random.random() * 1.2, job)
        else:
            moment = self._random.choice(MOMENTS)
            count = self._random.choice((1, 1, 2, 3, 5, 8, 13))
            soon = job if at_once else lambda: self._group.clock.after(0.0, job)
            self._group.when(spoke, moment, count, soon)

    def _happen(self, kind: str, rank: int, spoke: int) -> None:
        node = self._group.node(rank)
        if kind in ("kill", "restart") and self._group.auto and not node.joined:
            return  # until its death is noticed it takes up a rank that is not its own
        if node.running:
            doing: dict[str, Callable[[], object]] = {
                "cut": lambda: self._cut(spoke, self._random.random() * 0.4),
                "long cut": lambda: self._cut(spoke, self._random.uniform(2.5, 4.0)),
                "delay": lambda: self._delay(spoke),
                "short stop": lambda: self._stop(rank, self._random.uniform(0.05, 0.7)),
                "long stop": lambda: self._stop(rank, self._random.uniform(2.5, 5.0)),
                "kill": node.kill,
                "restart": lambda: self._restart(rank),
                "abort": lambda: self._abort(rank),
            }
            self._done(kind)
            doing[kind]()

    def _done(self, kind: str) -> None:
        self.done.add(kind)
        self._group.counts[f"fault: {kind}"] += 1

    # --- what happens -------------------------------------------------------------

    def _plan_exit(self, rank: int) -> None:
        node = self._group.nodes[rank]
        if self.leaver is None and len(node.order) > 1:
            self._done("exit")
            self.leaver = rank
            node.leaves_after = self._random.randrange(1, len(node.order))
            node.hurries = self._random.random() < 0.3

    def _plan_mismatch(self, rank: int) -> None:
        node, steps = self._group.nodes[rank], self._group.plan.steps
        shared = [
            number
            for number in node.order
            if isinstance(steps[number], Call) and len(steps[number].active) > 1
        ]
        if self.mistake is None and shared:
            self._done("mismatch")
            self.mistake = node.mistakes = self._random.choice(shared)

    def _cut(self, rank: int, seconds: float) -> None:
        spoke, now = self._group.spokes[rank - 1], self._group.clock.now
        spoke.down_until = max(spoke.down_until, now + seconds)
        self._troubles.append(Trouble(now, now + seconds, cut=True, rank=rank))
        spoke.disconnect()

    def _delay(self, rank: int) -> None:
        spoke, now = self._group.spokes[rank - 1], self._group.clock.now
        seconds = self._random.random() * 0.5
        self._troubles.append(Trouble(now, now + seconds, cut=False, rank=rank))
        spoke.slow_down(seconds)

    def _stop(self, rank: int, seconds: float) -> None:
        """Stop a process; heartbeats may find it silent before it runs again."""
        now = self._group.clock.now
        noticed = self._random.random() < 0.6
        self._troubles.append(Trouble(now, now + seconds, cut=noticed, rank=rank))
        self._group.node(rank).stop(seconds)
        if noticed:
            spokes = [s for s in self._group.spokes if rank in (0, s.rank)]
            for spoke in spokes:
                silent = self._random.random() * seconds
                self._group.clock.after(silent, spoke.disconnect)

    def _restart(self, rank: int) -> None:
        self._group.node(rank).kill()
        delay = self._random.choice((0.01, 0.3, 1.0, 3.0))
        self._group.clock.after(delay, lambda: self._group.restart(rank))

    def _abort(self, rank: int) -> None:
        if self._group.node(rank).abort():
            self.aborted.add(rank)

    # --- what it excuses ----------------------------------------------------------

    def excuse_loss(self, rank: int) -> bool:
        """Whether rank 0 and this replica may have given each other up."""
        end, start, cut = -1.0, -1.0, False
        mine = [each for each in self._troubles if each.rank in (0, rank)]
        over = self.done & {"exit", "mismatch"} and rank in self._group.plan.leavers
        if over and any(each.cut for each in mine):
            return True  # in a group that is over it waits for no connection to say so
        for each in sorted(mine, key=lambda trouble: trouble.start):
            if each.start > end + GAP:
                start, cut = each.start, False
            end, cut = max(end, each.end), cut or each.cut
            if cut and end - start >= HARMLESS:
                return True
        return False

    def excuse(self, error: GroupError, number: int) -> bool:
        """Whether something that was injected explains that a step ended so."""
        if isinstance(error, MismatchError):
            return self.by_mismatch(number) is not False
        if isinstance(error, AbortedError):
            return error.rank in self.aborted and error.reason == "it was planned"
        if isinstance(error, ReplicaExitedError):
            planned = error.rank == self.leaver and error.reason == "it was planned"
            return planned and self.by_exit(number) is not False
        return False

    def by_exit(self, number: int) -> bool | None:
        """Whether a step ends by somebody's exit; None: maybe."""
        if self.leaver is None:
            return False
        node, steps = self._group.nodes[self.leaver], self._group.plan.steps
        made, team = node.order[: node.leaves_after], steps[number].team
        has_left = any(
            isinstance(steps[each], Leave) and steps[each].team == team
            for each in made
            if each < number
        )
        if self.leaver not in team.members:
            return False
        if number in made or has_left:
            # Who hurries does not wait until its payloads have gone, and nobody until
            # rank 0 has asked for a function.
            asked = self._is_asked_for_function(steps[number], self.leaver)
            return None if node.hurries or asked else False
        return True

    def _is_asked_for_function(self, step: Step, replica: int) -> bool:
        """Whether rank 0 has to ask a replica for the reduce function of a call."""
        folds = isinstance(step, Call) and step.operation in FOLDING
        first = step.rank_of(replica) == step.active[0]
        return folds and first and step.active[0] != 0

    def by_mismatch(self, number: int) -> bool | None:
        """Whether a step ends by a mismatch; None: maybe, with a group above it."""
        if self.mistake is None:
            return False
        steps = self._group.plan.steps
        wrong, team = steps[self.mistake].team, steps[number].team
        if team == wrong:
            return number >= self.mistake
        return None if wrong in self._group.plan.above(team) else False

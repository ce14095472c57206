"""Draws random programs.

Collectives of every kind, in groups that are made on the way, blocking and
asynchronous, with replicas that leave groups and calls that fail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from programs import model
from programs.ingredients import FOLDS
from programs.program import Call, Close, Collect, Leave, Program, Regroup, Team

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from programs.program import Step

PADDING = (0, 0, 0, 0, 0, 30, 150, 400)  # characters; what is long goes in chunks


@dataclass(frozen=True)
class Taste:
    """Which programs are drawn.

    Attributes:
        folds: The reduce functions.
        leaves: Whether replicas leave groups.
        flaws: Whether calls fail.
        padding: By how many characters values may be longer.
    """

    folds: Sequence[str] = tuple(FOLDS)
    leaves: bool = True
    flaws: bool = True
    padding: Sequence[int] = PADDING


# Now and then values are so large that they travel in chunks.
LARGE_NOW_AND_THEN = Taste(padding=(0,) * 19 + (100_000,))


def draw_program(
    rng: random.Random, size: int, taste: Taste = Taste(), longest: int = 14
) -> Program:
    """Draw a program for so many replicas."""
    draw = _Draw(rng, size, taste)
    seed = rng.randrange(1 << 16)
    steps = [draw.step(number) for number in range(rng.randint(1, longest))]
    return Program(size, seed, tuple(step for step in steps if step is not None))


class _Draw:
    def __init__(self, rng: random.Random, size: int, taste: Taste) -> None:
        self._rng = rng
        self._taste = taste
        self._made = 1
        world = Team(0, tuple(range(size)))
        self._active: dict[Team, list[int]] = {world: list(range(size))}
        self._parents: set[Team] = {world}  # that must not be closed

    def step(self, number: int) -> Step | None:
        team = self._rng.choice(list(self._active))
        active = tuple(self._active[team])
        what = self._rng.randrange(20)
        if what < 3:
            return self._regroup(team, active)
        if what < 5 and self._taste.leaves:
            return self._leave(team, active)
        if what == 5 and team not in self._parents and len(self._active) > 1:
            del self._active[team]
            return Close(team, active, together=self._rng.random() < 0.5)
        if what == 6:
            return Collect(team, active)
        return self._call(team, active, number)

    def _leave(self, team: Team, active: tuple[int, ...]) -> Leave | None:
        if len(active) == len(self._active) == 1:
            return None  # nobody would be left for the steps to come
        leaver = self._rng.choice(active)
        self._active[team].remove(leaver)
        if not self._active[team]:
            del self._active[team]
        return Leave(team, active, leaver)

    def _team(self, members: Sequence[int], parent: Team) -> Team:
        team = Team(self._made, tuple(parent.members[rank] for rank in members))
        self._made += 1
        self._parents.add(parent)
        self._active[team] = list(range(len(members)))
        return team

    def _regroup(self, team: Team, active: tuple[int, ...]) -> Regroup:
        rng = self._rng
        how = rng.choice(("split", "split", "dup", "group"))
        colors: dict[int, int | str | None] = {}
        keys: dict[int, int] = {}
        ranks: list[int] = []
        if how == "split":
            for rank in active:
                colors[rank] = rng.choice((None, 0, 0, 1, "a"))
                keys[rank] = rng.choice((0, 0, 1, -1))
            groups = model.split(colors, keys)
        elif how == "dup":
            groups = [list(active)]
        else:
            ranks = rng.sample(active, rng.randint(1, len(active)))
            groups = [ranks]
        made = tuple(self._team(members, team) for members in groups)
        return Regroup(team, active, how, colors, keys, tuple(ranks), made)

    def _call(self, team: Team, active: tuple[int, ...], number: int) -> Call:
        rng, size = self._rng, len(team.members)
        operation = rng.choice(model.OPERATIONS)
        roots = range(size) if self._taste.leaves else active
        root = rng.choice(roots) if operation in model.ROOTED else 0
        function = rng.choice(self._taste.folds)
        padding = rng.choice(self._taste.padding)
        make = FOLDS[function][1]
        values: list[Any] = []
        for rank in range(size):
            labels = [f"{number}.{rank}.{item}" for item in range(size)]
            if operation not in model.LISTING:
                labels = labels[:1]
            longer = [label.rjust(len(label) + padding, ".") for label in labels]
            made = [make(label) for label in longer]
            values.append(made if operation in model.LISTING else made[0])
        flaw, culprit = self._flaw(operation, root, active)
        blocking = rng.random() < 0.5
        return Call(
            *(team, active, operation, root, function, tuple(values), blocking),
            *(flaw, culprit),
        )

    def _flaw(
        self, operation: str, root: int, active: tuple[int, ...]
    ) -> tuple[str, int]:
        rng = self._rng
        rooted = operation in model.ONE_GIVES
        flaws = []
        if operation in model.LISTING:
            flaws.append("length")
        if operation != "barrier":
            flaws.append("unpicklable")
        # An exclusive scan of two folds nothing.
        if operation in model.FOLDING - {"exscan"} and len(active) > 1:
            flaws += ["untakeable", "fails", "spoils"]
        unsound = self._taste.flaws and rng.random() < 0.1
        if not flaws or not unsound or (rooted and root not in active):
            return "", 0
        return rng.choice(flaws), root if rooted else rng.choice(active)

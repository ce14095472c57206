"""Random programs: the same steps on every replica, and what each must come to.

:func:`draw_program` draws collectives of every kind, in groups that are made on the
way, blocking and asynchronous, with replicas that leave groups and calls that fail.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from programs import model

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


# --- reduce functions, none of which commutes -------------------------------------


def join(a: str, b: str) -> str:
    return a + b


def nest(a: str, b: str) -> str:
    """Write down how the fold was bracketed: this does not associate either."""
    return f"({a}{b})"


def extend(a: list[str], b: list[str]) -> list[str]:
    """Change the left operand in place, as the default function does."""
    a += b
    return a


def chain(a: list[str], b: list[str]) -> list[str]:
    return a + b


def multiply(a: Any, b: Any) -> Any:
    return a @ b


def subtract(a: int, b: int) -> int:
    return a - b


def fail(a: Any, b: Any) -> Any:
    raise ArithmeticError("this function always fails")


def spoil(a: Any, b: Any) -> Any:
    return Unpicklable()


class Unpicklable:
    """No pickle of this can be made."""

    def __reduce__(self) -> Any:
        raise TypeError("this cannot be pickled")


class Untakeable:
    """A pickle of this can be made, but nobody can take it."""

    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> Any:
    raise ValueError("this cannot be unpickled")


def _matrix(label: str) -> Any:
    numbers = [ord(letter) % 7 - 3 for letter in label[-4:].rjust(4, "x")]
    return np.array(numbers).reshape(2, 2)


# A function, and what it takes, made from a label.
FOLDS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[str], Any]]] = {
    "join": (join, lambda label: f"<{label}>"),
    "multiply": (multiply, _matrix),
    "chain": (chain, lambda label: [label]),
    "extend": (extend, lambda label: [label]),
    "nest": (nest, lambda label: label),
    "subtract": (subtract, lambda label: len(label) + ord(label[-1])),
}
# What mpi4py asks for: associative, and its scan goes wrong with a function that
# changes an operand.
ASSOCIATIVE_AND_PURE = ("join", "multiply", "chain")
PADDING = (0, 0, 0, 0, 0, 30, 150, 400)  # characters; what is long goes in chunks


# What may be wrong with a call, and which error it is. The first is found by who
# makes the call; what cannot be unpickled, by rank 0 and only if it has to be.
FLAWS = {
    "length": "CollectiveError",
    "unpicklable": "EncodeError",
    "untakeable": "DecodeError",
    "fails": "ReduceError",
    "spoils": "EncodeError",
}
FUNCTIONS = {"fails": fail, "spoils": spoil}  # those of reduce functions

# --- steps ------------------------------------------------------------------------


@dataclass(frozen=True)
class Team:
    """A group of a program.

    Attributes:
        number: Its number; 0 is the group that the program starts with.
        members: The rank of each member in group 0, by its rank here.
    """

    number: int
    members: tuple[int, ...]


@dataclass(frozen=True)
class Failed:
    """The call is a CollectiveError for everybody."""

    kind: str
    rank: int | None = None  # whom the error names


@dataclass(frozen=True)
class Step:
    """What the active members of a team do together.

    Attributes:
        team: The team.
        active: The ranks in it that have not left.
    """

    team: Team
    active: tuple[int, ...]

    def rank_of(self, replica: int) -> int | None:
        """The rank of a replica in the team if it takes part, or None."""
        if replica not in self.team.members:
            return None
        rank = self.team.members.index(replica)
        return rank if rank in self.active else None


@dataclass(frozen=True)
class Call(Step):
    """A collective.

    Attributes:
        operation: The method.
        root: Its root, if it has one.
        function: The name of the reduce function.
        values: What each rank contributes; of those who have left, nothing.
        blocking: Whether it waits, or its result is collected later.
        flaw: What is wrong with it: one of FLAWS, or "".
        culprit: The rank whose value it is wrong with.
    """

    operation: str
    root: int
    function: str
    values: tuple[Any, ...]
    blocking: bool
    flaw: str = ""
    culprit: int = 0

    @property
    def fold(self) -> Callable[[Any, Any], Any]:
        """The reduce function."""
        return FUNCTIONS.get(self.flaw, FOLDS[self.function][0])

    def value_of(self, rank: int) -> Any:
        """What a rank contributes, with the flaw."""
        value = self.values[rank]
        if rank != self.culprit or not self.flaw or self.flaw in FUNCTIONS:
            return value
        if self.flaw == "length":
            return value[:-1]
        wrong = Unpicklable() if self.flaw == "unpicklable" else Untakeable()
        return [wrong, *value[1:]] if self.operation in model.LISTING else wrong

    def expected(self) -> dict[int, Any]:
        """What each replica that takes part must get, by its rank in group 0."""
        try:
            given = {rank: self.values[rank] for rank in self.active}
            call = model.Collective(
                len(self.values), given, FOLDS[self.function][0], self.root
            )
            ranks = model.results(self.operation, call)
        except model.RootLeftError:
            ranks = dict.fromkeys(self.active, Failed("CollectiveError"))
        else:
            if self.flaw:
                ranks = dict.fromkeys(self.active, self._failure())
        return {self.team.members[rank]: ending for rank, ending in ranks.items()}

    def _failure(self) -> Failed:
        kind = FLAWS[self.flaw]
        if self.flaw in FUNCTIONS:
            return Failed(kind, 0)  # it is rank 0's process that folds
        return Failed(kind, self.team.members[self.culprit])


@dataclass(frozen=True)
class Regroup(Step):
    """New groups are made.

    Attributes:
        how: The method: "split", "dup" or "group".
        colors: For a split, by rank.
        keys: For a split, by rank.
        ranks: For a group.
        made: The teams.
    """

    how: str
    colors: Mapping[int, int | str | None]
    keys: Mapping[int, int]
    ranks: tuple[int, ...]
    made: tuple[Team, ...]

    def team_of(self, replica: int) -> Team | None:
        """The new team of a replica, if it is in one."""
        return next((team for team in self.made if replica in team.members), None)

    def expected(self) -> dict[int, Any]:
        """Each replica's new rank and the size of its new group, or None."""
        return {
            replica: None
            if (team := self.team_of(replica)) is None
            else (team.members.index(replica), len(team.members))
            for replica in (self.team.members[rank] for rank in self.active)
        }


@dataclass(frozen=True)
class Leave(Step):
    """One replica makes no more calls in a group."""

    leaver: int

    def rank_of(self, replica: int) -> int | None:
        """Only one replica takes part."""
        rank = super().rank_of(replica)
        return rank if rank == self.leaver else None


@dataclass(frozen=True)
class Close(Step):
    """Nobody needs a group any more."""

    together: bool  # teardown(), not close()


@dataclass(frozen=True)
class Collect(Step):
    """Some of the asynchronous calls are collected, each replica's own choice."""


@dataclass(frozen=True)
class Program:
    """A program.

    Attributes:
        size: For how many replicas.
        seed: Decides what replicas may decide by themselves.
        steps: What they do.
    """

    size: int
    seed: int
    steps: tuple[Step, ...]

    def order(self, replica: int) -> list[int]:
        """The steps in which a replica takes part, in its order.

        Calls of different groups need no common order, as long as none waits: so
        every replica has an order of its own.
        """
        order = [n for n, s in enumerate(self.steps) if s.rank_of(replica) is not None]
        rng = random.Random(self.seed * 100 + replica)
        for place in range(len(order) - 1):
            one, other = (self.steps[number] for number in order[place : place + 2])
            may_swap = (
                isinstance(one, Call)
                and isinstance(other, Call)
                and not (one.blocking or other.blocking)
                and one.team != other.team
            )
            if may_swap and rng.random() < 0.5:
                order[place : place + 2] = order[place + 1], order[place]
        return order

    def above(self, team: Team) -> list[Team]:
        """The team that a team was made of, and that one's, and so on."""
        for step in self.steps:
            if isinstance(step, Regroup) and team in step.made:
                return [step.team, *self.above(step.team)]
        return []

    @property
    def leavers(self) -> set[int]:
        """Who leaves group 0."""
        leaves = [step for step in self.steps if isinstance(step, Leave)]
        return {step.leaver for step in leaves if not step.team.number}

    def may_be_torn_down(self, number: int) -> bool:
        """Whether others may tear group 0 down before a step has ended.

        It is so if all who take part in the step have left group 0: nobody who
        tears it down waits for them, and the groups that were made of it go with it.
        """
        step = self.steps[number]
        return self.leavers.issuperset(step.team.members[rank] for rank in step.active)

    def expected(self, replica: int) -> dict[int, Any]:
        """What a replica must get, by the number of the step."""
        return {
            number: step.expected()[replica]
            for number, step in enumerate(self.steps)
            if isinstance(step, Call | Regroup) and step.rank_of(replica) is not None
        }


# --- drawing ----------------------------------------------------------------------


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

"""Programs: the same steps on every replica, and what each of them must come to."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from programs import model
from programs.ingredients import FLAWS, FOLDS, FUNCTIONS, Unpicklable, Untakeable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


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

    def order(self, replica: int, *, limit: int | None = None) -> list[int]:
        """The steps in which a replica takes part, in its order.

        Calls of different groups need no common order, as long as none waits: so
        every replica has an order of its own.

        Args:
            replica: Its rank.
            limit: How many calls of a group may be in flight, if the next one then
                waits: where that may be, all have the same order.
        """
        order = [n for n, s in enumerate(self.steps) if s.rank_of(replica) is not None]
        if limit is not None and limit < len(self.steps):
            return order
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

"""What every collective gives to whom: a model in plain Python.

From the values of all replicas that take part, by their rank in the group, the
model says what each of them gets. Ranks that have left the group are missing from
the values.
"""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Function = "Callable[[Any, Any], Any]"


class RootLeftError(Exception):
    """The root of a call has left the group: a CollectiveError for everybody."""


@dataclass(frozen=True)
class Collective:
    """One collective call.

    Attributes:
        size: The group's size, with those who have left.
        given: What each replica that takes part contributes, by rank. A list with
            an item for every rank, where the operation needs one.
        fold: The reduce function.
        root: The root, where there is one.
    """

    size: int
    given: Mapping[int, Any]
    fold: Callable[[Any, Any], Any] = lambda a, b: a + b
    root: int = 0

    def folded(self, ranks: Iterable[int], item: int | None = None) -> Any:
        """Fold what some ranks contribute, or one item of it, in rank order."""
        values = [self.given[rank] for rank in sorted(ranks)]
        values = values if item is None else [value[item] for value in values]
        return functools.reduce(self.fold, copy.deepcopy(values))

    def listed(self, item: int | None = None) -> list[Any]:
        """List what all ranks contribute, or one item of it."""
        return [
            zcoll.ABSENT
            if rank not in self.given
            else self.given[rank]
            if item is None
            else self.given[rank][item]
            for rank in range(self.size)
        ]

    def up_to(self, rank: int) -> list[int]:
        """List the ranks that take part, up to this one."""
        return [other for other in self.given if other <= rank]


def _exscan(call: Collective, rank: int) -> Any:
    before = call.up_to(rank - 1)
    return call.folded(before) if before else None


RESULTS: dict[str, Callable[[Collective, int], Any]] = {
    "reduce": lambda c, rank: c.folded(c.given) if rank == c.root else None,
    "allreduce": lambda c, rank: c.folded(c.given),
    "broadcast": lambda c, rank: c.given[c.root],
    "gather": lambda c, rank: c.listed() if rank == c.root else None,
    "allgather": lambda c, rank: c.listed(),
    "scatter": lambda c, rank: c.given[c.root][rank],
    "alltoall": lambda c, rank: c.listed(rank),
    "scan": lambda c, rank: c.folded(c.up_to(rank)),
    "exscan": _exscan,
    "reduce_scatter": lambda c, rank: c.folded(c.given, rank),
    "barrier": lambda c, rank: None,
}
OPERATIONS = tuple(RESULTS)
ROOTED = frozenset({"reduce", "broadcast", "gather", "scatter"})
FOLDING = frozenset({"reduce", "allreduce", "scan", "exscan", "reduce_scatter"})
LISTING = frozenset({"scatter", "alltoall", "reduce_scatter"})  # an item for each rank
ONE_GIVES = frozenset({"broadcast", "scatter"})  # the root


def results(operation: str, call: Collective) -> dict[int, Any]:
    """What each replica that takes part gets, by rank.

    Raises:
        RootLeftError: The root is not one of them.
    """
    if operation in ROOTED and call.root not in call.given:
        raise RootLeftError
    return {rank: RESULTS[operation](call, rank) for rank in call.given}


def split(
    colors: Mapping[int, int | str | None], keys: Mapping[int, int]
) -> list[list[int]]:
    """The groups that a split makes: each one's ranks of the old group, in order."""
    groups: dict[int | str, list[int]] = {}
    for rank in sorted(colors):
        color = colors[rank]
        if color is not None:
            groups.setdefault(color, []).append(rank)
    return [sorted(ranks, key=lambda r: (keys[r], r)) for ranks in groups.values()]


def arguments(
    operation: str, value: Any, *, root: int, fold: Callable[[Any, Any], Any], rank: int
) -> tuple[Sequence[Any], dict[str, Any]]:
    """The arguments by which one replica makes a call of a Communicator.

    Args:
        operation: The method.
        value: What this replica contributes.
        root: The root.
        fold: The reduce function.
        rank: The replica's rank in the group.
    """
    if operation == "barrier":
        return (), {}
    ignored = operation in ONE_GIVES and rank != root
    positional = [None if ignored else value]
    if operation in FOLDING:
        positional.append(fold)
    return positional, {"root": root} if operation in ROOTED else {}

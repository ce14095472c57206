"""What each replica gets back of a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zcoll import bundle
from zcoll.operations import Folding, Operation, Who
from zcoll.payload import EMPTY, Payload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Outcome:
    """Payloads, by whom they are for. Who gets none gets an empty one.

    Attributes:
        shared: The same for everybody; its memory is nobody's own.
        own: One for each of these ranks (of the world).
    """

    __slots__ = ("own", "shared")

    def __init__(
        self, shared: Payload | None = None, own: dict[int, Payload] | None = None
    ) -> None:
        self.shared = shared
        self.own = {} if own is None else own

    def of(self, rank: int) -> Payload:
        """What this rank gets."""
        if self.shared is not None:
            return self.shared
        return self.own.get(rank, EMPTY)


def _address(operation: Operation, root: int, payload: Payload) -> Outcome:
    """A payload for the root, or for everybody."""
    if operation.target is Who.ROOT:
        return Outcome(own={root: payload})
    return Outcome(shared=payload.shared())


def forward(
    operation: Operation,
    root: int,
    ranks: Sequence[int],
    payloads: Mapping[int, Payload],
    items: Mapping[int, Sequence[Payload]],
) -> Outcome:
    """What replicas get of a call whose payloads are only forwarded.

    Args:
        operation: The call's.
        root: The call's, as a rank of the world.
        ranks: The group's members, in its order.
        payloads: What was contributed, by rank.
        items: The same, taken apart, where lists were contributed.
    """
    if not operation.spread:
        return _address(operation, root, _pick(operation, root, ranks, payloads))
    own = {}
    for place, rank in enumerate(ranks):
        theirs = {source: each[place] for source, each in items.items()}
        own[rank] = _pick(operation, root, ranks, theirs)
    return Outcome(own=own)


def _pick(
    operation: Operation,
    root: int,
    ranks: Sequence[int],
    payloads: Mapping[int, Payload],
) -> Payload:
    """Those of all replicas as a list, or the root's."""
    if operation.many:
        return bundle.join([payloads.get(rank) for rank in ranks])
    return payloads[root]


def reduced(
    operation: Operation,
    root: int,
    ranks: Sequence[int],
    contributors: Sequence[int],
    results: Sequence[Payload],
) -> Outcome:
    """What replicas get of a call that was folded.

    Args:
        operation: The call's.
        root: The call's, as a rank of the world.
        ranks: The group's members, in its order.
        contributors: Those who took part, in the same order.
        results: What the fold gave: one, or one for each.
    """
    if operation.folding is Folding.WHOLE:
        return _address(operation, root, results[0])
    whose = ranks if operation.folding is Folding.ITEMS else contributors
    return Outcome(own=dict(zip(whose, results, strict=True)))

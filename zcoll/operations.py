"""The collectives, as data: who contributes what, and who gets what back.

A new collective is one entry here, and a method that makes it.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from zcoll.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Who(enum.Enum):
    """Whose payload a call needs, or who gets one back."""

    NOBODY = "nobody"
    ROOT = "root"
    EVERYBODY = "everybody"  # as targets: all the same payload
    EACH = "each"  # a payload of its own


class Folding(enum.Enum):
    """What rank 0 makes of the values that a reduce function is for."""

    WHOLE = "whole"  # one value of all of them
    PREFIX = "prefix"  # for each rank, one of those up to its own
    BEFORE = "before"  # for each rank, one of those before its own
    ITEMS = "items"  # for each rank, one of everybody's items for it


class Makes(enum.Enum):
    """What rank 0 itself reads in the payloads: how to make groups."""

    SPLIT = "split"
    DUP = "dup"
    GROUP = "group"


class Operation(NamedTuple):
    """One collective.

    Attributes:
        code: Its number on the wire; never used again for something else.
        name: Its name in the API, in errors and reports.
        source: Whose payload it needs.
        target: Who gets a payload back.
        folding: How the payloads are reduced at rank 0; None: they are only
            forwarded, and rank 0 never unpickles them.
        spread: Whether who contributes gives a list, with an item for each rank.
        many: Whether who gets a payload gets a list, with an item of each rank.
        rooted: Whether the root is part of what replicas must agree on.
        ends: Whether the group ends with it.
        makes: Which groups come of it, if any.
    """

    code: int
    name: str
    source: Who
    target: Who
    folding: Folding | None = None
    spread: bool = False
    many: bool = False
    rooted: bool = False
    ends: bool = False
    makes: Makes | None = None

    def contributors(self, ranks: Sequence[int], root: int) -> list[int]:
        """Those of the ranks whose payload the call needs, in their order."""
        return [rank for rank in ranks if self.contributes(rank, root)]

    def contributes(self, rank: int, root: int) -> bool:
        """Whether this replica sends a payload."""
        return self.source is Who.EVERYBODY or (
            self.source is Who.ROOT and rank == root
        )

    def describe(self, root: int, tag: str = "") -> str:
        """The call as reports write it: ``broadcast(root=2, tag='loss')``."""
        given = [f"root={root}"] if self.rooted else []
        if tag:
            given.append(f"tag={tag!r}")
        return f"{self.name}({', '.join(given)})"


_ALL, _EACH, _ROOT, _NONE = Who.EVERYBODY, Who.EACH, Who.ROOT, Who.NOBODY

ALLREDUCE = Operation(1, "allreduce", _ALL, _ALL, Folding.WHOLE)
BROADCAST = Operation(2, "broadcast", _ROOT, _ALL, rooted=True)
BARRIER = Operation(3, "barrier", _NONE, _NONE)
TEARDOWN = Operation(4, "teardown", _NONE, _NONE, ends=True)
REDUCE = Operation(5, "reduce", _ALL, _ROOT, Folding.WHOLE, rooted=True)
GATHER = Operation(6, "gather", _ALL, _ROOT, many=True, rooted=True)
ALLGATHER = Operation(7, "allgather", _ALL, _ALL, many=True)
SCATTER = Operation(8, "scatter", _ROOT, _EACH, spread=True, rooted=True)
ALLTOALL = Operation(9, "alltoall", _ALL, _EACH, spread=True, many=True)
SCAN = Operation(10, "scan", _ALL, _EACH, Folding.PREFIX)
EXSCAN = Operation(11, "exscan", _ALL, _EACH, Folding.BEFORE)
REDUCE_SCATTER = Operation(
    12, "reduce_scatter", _ALL, _EACH, Folding.ITEMS, spread=True
)
SPLIT = Operation(13, "split", _ALL, _EACH, makes=Makes.SPLIT)
DUP = Operation(14, "dup", _NONE, _EACH, makes=Makes.DUP)
GROUP = Operation(15, "group", _ALL, _EACH, makes=Makes.GROUP)

OPERATIONS = (
    *(ALLREDUCE, BROADCAST, BARRIER, TEARDOWN, REDUCE, GATHER, ALLGATHER, SCATTER),
    *(ALLTOALL, SCAN, EXSCAN, REDUCE_SCATTER, SPLIT, DUP, GROUP),
)
_BY_CODE = {operation.code: operation for operation in OPERATIONS}


def by_code(code: int) -> Operation:
    """The operation with this number on the wire.

    Raises:
        ProtocolError: There is none.
    """
    try:
        return _BY_CODE[code]
    except KeyError:
        raise ProtocolError(f"unknown operation {code}") from None

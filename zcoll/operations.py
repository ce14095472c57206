"""The collectives, as data: who contributes a payload, and what becomes of it.

A new collective is one entry here; nothing else needs to know its name.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zcoll.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Source(enum.Enum):
    """Whose payload a call needs."""

    NOBODY = "nobody"
    ROOT = "root"
    EVERYBODY = "everybody"


@dataclass(frozen=True, slots=True)
class Operation:
    """One collective.

    Attributes:
        code: Its number on the wire; never used again for something else.
        name: Its name in the API, in errors and reports.
        source: Whose payload it needs.
        folds: Whether the payloads are reduced to one at rank 0. Otherwise they
            are only forwarded, and rank 0 never unpickles them.
        rooted: Whether the root is part of what replicas must agree on.
        ends: Whether the group ends with it.
    """

    code: int
    name: str
    source: Source
    folds: bool = False
    rooted: bool = False
    ends: bool = False

    def contributors(self, ranks: Sequence[int], root: int) -> list[int]:
        """The ranks whose payload the call needs, in rank order."""
        if self.source is Source.EVERYBODY:
            return list(ranks)
        return [root] if self.source is Source.ROOT else []

    def contributes(self, rank: int, root: int) -> bool:
        """Whether this replica sends a payload."""
        return self.source is Source.EVERYBODY or (
            self.source is Source.ROOT and rank == root
        )

    def describe(self, root: int) -> str:
        """The call as reports write it: ``broadcast(root=2)``."""
        return f"{self.name}(root={root})" if self.rooted else f"{self.name}()"


ALLREDUCE = Operation(1, "allreduce", Source.EVERYBODY, folds=True)
BROADCAST = Operation(2, "broadcast", Source.ROOT, rooted=True)
BARRIER = Operation(3, "barrier", Source.NOBODY)
TEARDOWN = Operation(4, "teardown", Source.NOBODY, ends=True)

_BY_CODE = {
    operation.code: operation for operation in (ALLREDUCE, BROADCAST, BARRIER, TEARDOWN)
}


def by_code(code: int) -> Operation:
    """The operation with this number on the wire.

    Raises:
        ProtocolError: There is none.
    """
    try:
        return _BY_CODE[code]
    except KeyError:
        raise ProtocolError(f"unknown operation {code}") from None

"""A call as rank 0 sees it, and the steps that calls come to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zcoll.errors import CollectiveError, GroupError
    from zcoll.operations import Operation
    from zcoll.wire import Payload


@dataclass(slots=True)
class Call:
    """One call, as far as it has come.

    Attributes:
        seq: Its number in the group.
        operation: What it is, as the first to call it said.
        root: Its root.
        sites: Where each rank called it.
        payloads: The complete payloads that are still needed.
        sizes: The sizes in bytes of chunked payloads, by rank.
        errors: What ranks sent instead of a payload.
        granted: How many contributors may have sent their chunks.
        folded: How many contributors' payloads were handed to the fold.
        folding: Whether the fold is at work on some of them.
        holding: The bytes of chunked operands granted and not folded.
    """

    seq: int
    operation: Operation
    root: int
    contributors: list[int]
    sites: dict[int, str] = field(default_factory=dict)
    payloads: dict[int, Payload] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    errors: dict[int, CollectiveError] = field(default_factory=dict)
    granted: int = 0
    folded: int = 0
    folding: bool = False
    holding: int = 0

    def __str__(self) -> str:
        return f"{self.operation.describe(self.root)}, call {self.seq}"


@dataclass(slots=True)
class Grant:
    """Let this replica send the chunks of its payload."""

    rank: int
    seq: int


@dataclass(slots=True)
class FoldNext:
    """Fold these operands, the next ones in rank order."""

    seq: int
    operands: list[tuple[int, Payload]]
    last: bool


@dataclass(slots=True)
class Decide:
    """The call is over; everybody gets this."""

    call: Call
    payload: Payload | None = None
    error: CollectiveError | None = None


@dataclass(slots=True)
class End:
    """The group is over for every call after ``after``."""

    error: GroupError
    after: int


Step = Grant | FoldNext | Decide | End

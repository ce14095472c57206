"""A call as rank 0 sees it, and the steps that calls come to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from zcoll.errors import CollectiveError, GroupError
    from zcoll.operations import Operation
    from zcoll.payload import Buffer, Payload
    from zcoll.protocol.outcomes import Outcome


class Call:
    """One call, as far as it has come. Ranks are those of the world.

    Attributes:
        seq: Its number in the group.
        operation: What it is, as the first to call it said.
        root: Its root, as a rank of the group.
        tag: What the user calls it.
        expected: How many replicas have to make it.
        contributors: Whose payload it needs, in the group's order.
        sites: Where each rank called it.
        payloads: The complete payloads that are still needed.
        items: Those of them that are lists, taken apart.
        sizes: The sizes in bytes of chunked payloads, by rank.
        errors: What ranks sent instead of a payload.
        fetched: Whether a replica was asked for its reduce function.
        function: The pickled reduce function, where rank 0 does not have it.
        granted: How many contributors may have sent their chunks.
        folded: How many contributors' payloads were handed to the fold.
        folding: Whether the fold is at work on some of them.
        holding: The bytes of chunked operands granted and not folded.
    """

    __slots__ = (
        "contributors",
        "errors",
        "expected",
        "fetched",
        "folded",
        "folding",
        "function",
        "granted",
        "holding",
        "items",
        "operation",
        "payloads",
        "root",
        "seq",
        "sites",
        "sizes",
        "tag",
    )

    def __init__(
        self,
        seq: int,
        operation: Operation,
        root: int,
        tag: str,
        expected: int,
        contributors: list[int],
    ) -> None:
        self.seq = seq
        self.operation = operation
        self.root = root
        self.tag = tag
        self.expected = expected
        self.contributors = contributors
        self.sites: dict[int, str] = {}
        self.payloads: dict[int, Payload] = {}
        self.items: dict[int, list[Payload]] = {}
        self.sizes: dict[int, int] = {}
        self.errors: dict[int, CollectiveError] = {}
        self.fetched = False
        self.function: Buffer | None = None
        self.granted = 0
        self.folded = 0
        self.folding = False
        self.holding = 0

    def describe(self) -> str:
        """What is called: ``broadcast(root=2)``."""
        return self.operation.describe(self.root, self.tag)

    def __str__(self) -> str:
        return f"{self.describe()}, call {self.seq}"


class Grant(NamedTuple):
    """Let this replica send the chunks of its payload."""

    rank: int
    seq: int


class Fetch(NamedTuple):
    """Ask this replica for the reduce function of a call."""

    rank: int
    seq: int


class FoldNext(NamedTuple):
    """Fold these operands, the next ones in rank order."""

    call: Call
    operands: list[tuple[int, Payload]]
    last: bool


class Decide:
    """The call is over; everybody gets this.

    Attributes:
        call: The call.
        outcome: Who gets what, if it ended well.
        error: Why it did not.
        active: Who still makes calls, as ranks of the group; None: as before.
    """

    __slots__ = ("active", "call", "error", "outcome")

    def __init__(
        self,
        call: Call,
        outcome: Outcome,
        error: CollectiveError | None = None,
        active: list[int] | None = None,
    ) -> None:
        self.call = call
        self.outcome = outcome
        self.error = error
        self.active = active


class End(NamedTuple):
    """The group is over for every call after ``after``."""

    error: GroupError
    after: int


Step = Grant | Fetch | FoldNext | Decide | End

"""What the machines tell the engine to do: events in, instructions out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from zcoll.absence import Absence
    from zcoll.errors import CollectiveError, GroupError, ZcollError
    from zcoll.operations import Operation
    from zcoll.payload import Buffer, Payload
    from zcoll.protocol.steps import Call
    from zcoll.wire import Message

Peer = bytes  # a connection, by the id that the ROUTER gave it; never a rank
LOCAL: Peer = b""  # rank 0's own replica, in the coordinator's process

WORLD = 0  # the group of all replicas
HUB = 0  # the rank whose process decides, and has its own reduce functions at hand


class Timing(NamedTuple):
    """The protocol's times, in seconds.

    Attributes:
        beacon_interval: Between a replica's signs of life.
        hello_interval: Before an unanswered HELLO is sent again.
        taken_limit: For how long a replica asks for a rank that another holds,
            since the other may just have died.
        reconnect_window: For how long a dropped connection may stay down before
            its replica counts as lost.
        silence: After which heartbeats have ended the connection of a process that
            is not there.
    """

    beacon_interval: float = 1.0
    hello_interval: float = 1.0
    taken_limit: float = 3.0
    reconnect_window: float = 2.0
    silence: float = 12.0


class Identity(NamedTuple):
    """Who a replica is, as HELLO says it.

    Attributes:
        rank: Its rank; ``AUTO_RANK`` before rank 0 has given it one.
        num_replicas: How many replicas it believes in.
        host: Its host's name.
        pid: Its process.
        incarnation: A random number of this ``initialize``.
        package: Its version of zcoll.
        python: Its version of Python.
    """

    rank: int
    num_replicas: int
    host: str
    pid: int
    incarnation: int
    package: str
    python: str

    @property
    def name(self) -> str:
        """How texts call it."""
        return f"replica {self.rank}" if self.rank >= 0 else "a replica without a rank"


class Contribution:
    """A replica's part of a call.

    Attributes:
        group: The group that it is made in.
        operation: What is called.
        root: Its root, as a rank of the group.
        tag: What the user calls it.
        site: The user's line that calls it.
        payload: This replica's part, if it has one.
        error: Why its part could not be encoded, instead of a payload.
        function: The pickled reduce function, or why there is none, where rank 0
            expects it without asking.
    """

    __slots__ = (
        *("error", "function", "group", "operation", "payload", "root", "site", "tag"),
    )

    def __init__(
        self,
        group: int,
        operation: Operation,
        root: int,
        tag: str,
        site: str,
        payload: Payload | None,
        error: CollectiveError | None = None,
        function: Buffer | CollectiveError | None = None,
    ) -> None:
        self.group = group
        self.operation = operation
        self.root = root
        self.tag = tag
        self.site = site
        self.payload = payload
        self.error = error
        self.function = function


# --- instructions of either machine ------------------------------------------------


class Send(NamedTuple):
    """Put a message on the way to a peer; a replica's only peer is rank 0."""

    message: Message
    peer: Peer = LOCAL


class Note(NamedTuple):
    """Write a line to the log.

    Attributes:
        text: The line.
        topic: Lines of one topic are written at most once a minute; "" is always.
        warning: Whether it is a warning rather than for information.
    """

    text: str
    topic: str = ""
    warning: bool = False


# --- instructions of the coordinator ------------------------------------------------


class Fold(NamedTuple):
    """Fold these operands of a call, by its reduce function, and report back.

    Attributes:
        group: The call's group.
        call: The call.
        operands: (rank, payload), the next ones in rank order.
        last: Whether the result is complete with them.
    """

    group: int
    call: Call
    operands: list[tuple[int, Payload]]
    last: bool


class Forget(NamedTuple):
    """A group is over for everybody: drop what is kept of it."""

    group: int


# --- instructions of a replica --------------------------------------------------------


class Joined:
    """The group is complete."""


class Refused(NamedTuple):
    """The group will not come together for this replica."""

    error: ZcollError


class Deliver(NamedTuple):
    """A call has this outcome. None: the call gives no value."""

    group: int
    seq: int
    payload: Payload | None


class Fail(NamedTuple):
    """A call has this error."""

    group: int
    seq: int
    error: CollectiveError | GroupError


class Missing(NamedTuple):
    """Rank 0's answer to the question who is missing in a call.

    Attributes:
        group: The call's group.
        seq: The call's number.
        ranks: Who is missing.
        absences: What is known of each.
        text: What the call waits for if nobody is.
    """

    group: int
    seq: int
    ranks: list[int]
    absences: list[Absence]
    text: str


class TellStack:
    """Rank 0 asks where this replica's program is: tell by ``Replica.tell``."""


class TellFunction(NamedTuple):
    """Rank 0 needs the reduce function of a call: give it by ``Replica.equip``."""

    group: int
    seq: int


CoordinatorInstruction = Send | Note | Fold | Forget
ReplicaInstruction = (
    Send | Note | Joined | Refused | Deliver | Fail | Missing | TellStack | TellFunction
)

"""One member of a group, as rank 0 sees it."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zcoll.protocol.events import Identity, Peer
    from zcoll.protocol.link import Link


class State(enum.Enum):
    """What a member is to rank 0."""

    ABSENT = "absent"  # has not come yet
    PRESENT = "present"
    LEFT = "left"  # said BYE
    LOST = "lost"  # given up


class Member:
    """One rank of the group.

    Attributes:
        rank: Its rank.
        link: This end of its connection.
        state: What it is to rank 0.
        peer: Its current connection, or None.
        identity: Who it said it was, once it has come.
        heard: When something last came from it.
        cut: When its connection was found to be gone, or None.
        contested: When somebody else has asked for its rank, and it has not been
            heard of since.
    """

    __slots__ = (
        "contested",
        "cut",
        "heard",
        "identity",
        "link",
        "peer",
        "rank",
        "state",
    )

    def __init__(self, rank: int, link: Link, state: State = State.ABSENT) -> None:
        self.rank = rank
        self.link = link
        self.state = state
        self.peer: Peer | None = None
        self.identity: Identity | None = None
        self.heard = 0.0
        self.cut: float | None = None
        self.contested: float | None = None

    def __str__(self) -> str:
        if self.identity is None:
            return f"replica {self.rank}"
        return f"replica {self.rank} ({self.identity.host}, pid {self.identity.pid})"

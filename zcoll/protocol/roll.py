"""Who is in a group, who still makes calls there, and what each called last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zcoll.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from zcoll.operations import Operation


# A member's last call: its number, operation, root and tag, and where it was made.
_Entry = tuple[int, "Operation | None", int, str, str]
_NONE: _Entry = (0, None, 0, "", "")


class Roll:
    """The members of one group, by their ranks in the world.

    Args:
        ranks: The members, in the group's order: a rank in the group is a place here.

    Attributes:
        ranks: As given.
        left: Who has left the group, and its last call before.
        closed: Who has released the group.
    """

    def __init__(self, ranks: Sequence[int]) -> None:
        self.ranks = list(ranks)
        self.left: dict[int, int] = {}
        self.closed: set[int] = set()
        self._entries = dict.fromkeys(ranks, _NONE)
        self._told = 0  # how many had left when it was told last

    def __contains__(self, rank: int) -> bool:
        return rank in self._entries

    def note(
        self, rank: int, seq: int, operation: Operation, root: int, tag: str, site: str
    ) -> None:
        """A member has made its next call.

        Raises:
            ProtocolError: It is not the next one.
        """
        if seq != self._entries[rank][0] + 1 or rank in self.left:
            raise ProtocolError(f"call {seq} of replica {rank} is out of order")
        self._entries[rank] = (seq, operation, root, tag, site)

    def note_all(
        self,
        seq: int,
        operation: Operation,
        root: int,
        tag: str,
        sites: Mapping[int, str],
    ) -> None:
        """All members have made the next call, each at its site."""
        for rank, site in sites.items():
            self._entries[rank] = (seq, operation, root, tag, site)

    def last(self, rank: int) -> int:
        """The number of a member's last call."""
        return self._entries[rank][0]

    def is_done(self, rank: int) -> bool:
        """Whether a member makes no more calls."""
        return rank in self.left or rank in self.closed

    def last_call(self, rank: int, name: str) -> str:
        """A member's last call, and where it was made, for people.

        Args:
            rank: The member's rank.
            name: The group's name; "" is the world.
        """
        seq, operation, root, tag, site = self._entries.get(rank, _NONE)
        if operation is None:
            return "nothing yet"
        text = f"{operation.describe(root, tag)}, call {seq}"
        text += f" of group {name!r}" if name else ""
        return f"{text} ({site})" if site else text

    def expected(self, seq: int) -> list[int]:
        """Who has to make this call, in the group's order."""
        if not self.left:
            return self.ranks
        return [r for r in self.ranks if r not in self.left or self.left[r] >= seq]

    def missing(self, seq: int) -> list[int]:
        """Who has not made this call, in the order of ranks in the world."""
        late = (r for r in self.expected(seq) if self._entries[r][0] < seq)
        return sorted(late)

    def news(self, seq: int) -> list[int] | None:
        """Who still makes calls, as ranks of the group, if fewer than before.

        Args:
            seq: The call by which it is told.
        """
        gone = sum(after < seq for after in self.left.values())
        if gone == self._told:
            return None
        self._told = gone
        there = set(self.expected(seq))
        return [place for place, rank in enumerate(self.ranks) if rank in there]

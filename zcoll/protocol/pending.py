"""The calls of one replica in one group: which have not ended, and when none will."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zcoll.errors import GroupError
    from zcoll.operations import Operation


class Pending:
    """Numbers a replica's calls in a group, and keeps those that have not ended.

    Args:
        group: The group's number.
        name: What errors call the group; "" is the world.
        ranks: Its members' ranks in the world, in its order.

    Attributes:
        group: As given.
        name: As given.
        ranks: As given.
        active: Who still makes calls, as ranks of the group.
        left: Whether this replica has left it: it makes no more calls.
        closed: Whether this replica has released it.
        seq: The number of the last call.
    """

    def __init__(self, group: int, name: str, ranks: list[int]) -> None:
        self.group = group
        self.name = name
        self.ranks = ranks
        self.active = list(range(len(ranks)))
        self.left = False
        self.closed = False
        self.seq = 0
        self._calls: dict[int, tuple[Operation, str]] = {}  # by seq: what, and where
        self._decided: tuple[int, Operation, str] | None = None  # the last one
        self._over: list[tuple[int, GroupError]] = []  # last call that may end well

    def __len__(self) -> int:
        return len(self._calls)

    def __contains__(self, seq: int) -> bool:
        """Whether a call is on its way."""
        return seq in self._calls

    @property
    def quiet(self) -> bool:
        """Whether all calls have ended, and more may be made."""
        return not (self._calls or self._over or self.left or self.closed)

    def add(self, seq: int, operation: Operation, site: str) -> None:
        """A call is on its way."""
        self._calls[seq] = (operation, site)

    def makes_groups(self, seq: int) -> bool:
        """Whether groups come of a call that has not ended."""
        call = self._calls.get(seq)
        return call is not None and call[0].makes is not None

    def decide(self, seq: int) -> tuple[Operation, str] | None:
        """Rank 0 has decided a call: its operation and site, unless it had ended."""
        call = self._calls.pop(seq, None)
        if call is not None:
            self._decided = (seq, *call)
        return call

    def conclude(self, operation: Operation, site: str) -> None:
        """The next call has been made and decided all at once."""
        self.seq += 1
        self._decided = (self.seq, operation, site)

    def drop(self, seq: int) -> None:
        """A call has ended with the group."""
        del self._calls[seq]

    def end(self, after: int, error: GroupError) -> list[int]:
        """The group is over after this call: the calls that end with it."""
        self._over.append((after, error))
        return [seq for seq in self._calls if seq > after]

    def end_of(self, seq: int) -> GroupError | None:
        """Why this call cannot be made any more."""
        return next((error for after, error in self._over if seq > after), None)

    @property
    def over(self) -> bool:
        """Whether the group has ended."""
        return bool(self._over)

    @property
    def last_decided(self) -> str:
        """The last call that rank 0 has decided, for people."""
        return "none" if self._decided is None else self._describe(*self._decided)

    def __str__(self) -> str:
        """The first call that has not ended, for people."""
        for seq, call in self._calls.items():
            return self._describe(seq, *call)
        return ""

    def _describe(self, seq: int, operation: Operation, site: str) -> str:
        text = f"{operation.name}, call {seq}" + (
            f" of group {self.name!r}" if self.name else ""
        )
        return f"{text} ({site})" if site else text

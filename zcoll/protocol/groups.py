"""The groups of a session, as rank 0 keeps them.

Each has its own numbering of calls. The world is group 0, and every other group is
made by a call of its parent: it ends when the parent does, and is forgotten when
all its members have released it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zcoll.errors import ProtocolError
from zcoll.protocol.calls import Calls
from zcoll.protocol.events import WORLD
from zcoll.wire import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from zcoll.protocol.plans import Plan
    from zcoll.wire import Message


class Groups:
    """The groups that there are.

    Args:
        size: The number of replicas.
    """

    def __init__(self, size: int) -> None:
        self.world = Calls(range(size))
        self._calls = {WORLD: self.world}
        self._parents: dict[int, int] = {}
        self._latest: dict[int, int] = {}  # in which group each rank called last
        self._last = WORLD  # the last number given; none is given twice

    def __iter__(self) -> Iterator[tuple[int, Calls]]:
        return iter(list(self._calls.items()))

    def __len__(self) -> int:
        return len(self._calls)

    def of(self, rank: int, message: Message) -> Calls | None:
        """The group that a member's message is about; None if it is forgotten.

        Raises:
            ProtocolError: There is no such group, or the sender is not in it.
        """
        calls = self._calls.get(message.group)
        if calls is None:
            if message.group > self._last:
                raise ProtocolError(f"there is no group {message.group}")
            return None
        if rank not in calls.roll:
            raise ProtocolError(f"replica {rank} is not in group {message.group}")
        if message.kind is Kind.CONTRIBUTE and (self._latest or message.group != WORLD):
            self._latest[rank] = message.group
        return calls

    def called(self, group: int, ranks: Iterable[int]) -> None:
        """These have made a call in a group."""
        if self._latest or group != WORLD:
            self._latest.update(dict.fromkeys(ranks, group))

    def find(self, group: int) -> Calls | None:
        """The calls of a group, unless it is forgotten."""
        return self._calls.get(group)

    def make(self, parent: int, plan: Plan) -> int:
        """Begin a group; give its number."""
        self._last += 1
        self._calls[self._last] = Calls(plan.ranks, plan.name)
        self._parents[self._last] = parent
        return self._last

    def below(self, group: int) -> list[int]:
        """A group and all that were made of it, and of those."""
        found = {group: None}  # a set in order
        for other, parent in self._parents.items():  # parents are made first
            if parent in found:
                found[other] = None
        return list(found)

    def forget(self, group: int) -> None:
        """Nobody will make another call in this group.

        Those that were made of it end from now on with the one that it was made of.
        """
        if group == WORLD or group not in self._calls:
            return
        del self._calls[group]
        above = self._parents.pop(group)
        for other, parent in self._parents.items():
            if parent == group:
                self._parents[other] = above

    def last_call(self, rank: int, group: int | None = None) -> str:
        """A replica's last call in a group, or in any, for people."""
        if group is None:
            group = self._latest.get(rank, WORLD)
        calls = self._calls.get(group, self.world)
        return calls.last_call(rank)

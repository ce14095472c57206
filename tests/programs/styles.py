"""The three ways to make calls: blocking, asynchronous, and on an event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from programs import model

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import zcoll

LIMIT = 20.0  # seconds


def blocking(comm: zcoll.Communicator, calls: Sequence[Planned]) -> list[Any]:
    """Make each call when the one before it has ended."""
    return [call.make(comm, call.operation, timeout=LIMIT) for call in calls]


def asynchronous(comm: zcoll.Communicator, calls: Sequence[Planned]) -> list[Any]:
    """Make all calls, then collect their results from the last to the first."""
    futures = [call.make(comm, f"{call.operation}_async") for call in calls]
    return [future.result(LIMIT) for future in reversed(futures)][::-1]


def awaited(comm: zcoll.Communicator, calls: Sequence[Planned]) -> list[Any]:
    """Make all calls on an event loop, and await them in tasks of their own."""

    async def wait(call: Planned) -> Any:
        return await call.make(comm, f"{call.operation}_async")

    async def main() -> list[Any]:
        return await asyncio.wait_for(asyncio.gather(*map(wait, calls)), LIMIT)

    return asyncio.run(main())


STYLES = (blocking, asynchronous, awaited)


class Planned:
    """One call that every replica of a group makes.

    Args:
        operation: Its method.
        size: The group's size.
        make: Makes a value from a number; each value of a call has another one.
        fold: The reduce function.
        root: The root.
    """

    def __init__(
        self,
        operation: str,
        size: int,
        make: Callable[[int], Any],
        fold: Callable[[Any, Any], Any] = lambda a, b: a + b,
        root: int = 0,
    ) -> None:
        self.operation = operation
        self.size = size
        self.root = root
        self._make = make
        self._fold = fold
        # Kept, since a local class that is gone comes back as another one.
        self._values: dict[int, Any] = {}

    def value_of(self, rank: int) -> Any:
        """Give what a rank contributes."""
        if rank not in self._values:
            first, lists = rank * self.size, self.operation in model.LISTING
            made = [self._make(first + item) for item in range(self.size)]
            self._values[rank] = made if lists else self._make(rank)
        return self._values[rank]

    def make(self, comm: zcoll.Communicator, method: str, **named: Any) -> Any:
        """Make the call by some method of the communicator."""
        rank = comm.replica_rank
        positional, more = model.arguments(
            self.operation,
            self.value_of(rank),
            root=self.root,
            fold=self._fold,
            rank=rank,
        )
        return getattr(comm, method)(*positional, **more, **named)

    def expected(self, left: Sequence[int] = ()) -> dict[int, Any]:
        """What each rank gets, when some have left."""
        given = {r: self.value_of(r) for r in range(self.size) if r not in left}
        call = model.Collective(self.size, given, self._fold, self.root)
        return model.results(self.operation, call)


def roots(operation: str, size: int) -> range:
    """All roots that a call can have."""
    return range(size if operation in model.ROOTED else 1)

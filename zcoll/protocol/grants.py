"""Which chunked payloads rank 0 lets in, so that it holds no more than it must."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zcoll.protocol.steps import Grant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from zcoll.protocol.steps import Call

# Bytes of chunked operands that rank 0 lets in ahead of the fold. The next one in
# order is always let in, so larger operands come one ahead of the other.
BUDGET = 64 * 1024 * 1024


class Grants:
    """Room for the payloads of one group's calls.

    Attributes:
        waiting: How many chunked payloads have not been let in.
        held: The bytes of those that have, and that rank 0 is not done with.
    """

    def __init__(self) -> None:
        self.waiting = 0
        self.held = 0

    def next(self, calls: Mapping[int, Call], head: int) -> Iterator[Grant]:
        """Let payloads in, in order of calls and ranks, while there is room.

        Args:
            calls: The open calls, by number.
            head: The number of the one that is decided next.
        """
        seq = head
        while (call := calls.get(seq)) is not None:
            while not call.errors and call.granted < len(call.contributors):
                rank = call.contributors[call.granted]
                if rank not in call.sites:
                    break
                size = 0 if rank in call.payloads else call.sizes.get(rank, 0)
                if size and not self._room(call, size, first=seq == head):
                    return
                call.granted += 1
                if size:
                    self.waiting -= 1
                    call.holding += size
                    self.held += size
                    yield Grant(rank, seq)
            seq += 1

    def _room(self, call: Call, size: int, *, first: bool) -> bool:
        """Whether a payload fits the budget, or has to be let in anyway."""
        if self.held + size <= BUDGET:
            return True
        if not first or call.operation.folding is None:
            return first  # what is forwarded is needed all at once
        ahead = sum(1 for r in call.contributors[: call.granted] if r in call.sizes)
        return ahead < 2

    def forget(self, call: Call) -> None:
        """A call is over."""
        if call.sizes:
            ungranted = call.contributors[call.granted :]
            self.waiting -= sum(1 for rank in ungranted if rank in call.sizes)
        self.release(call, call.holding)

    def release(self, call: Call, size: int) -> None:
        """Rank 0 is done with so many bytes of a call."""
        call.holding -= size
        self.held -= size

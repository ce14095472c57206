"""The calls of one group, as rank 0 sees them.

Contributions arrive in any order of ranks. A call is decided when every member's
has arrived, and calls are decided in order. Until then nobody gets a value, so
replicas that call different things are told apart before a payload is looked at.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from zcoll.errors import GroupError, MismatchError, ProtocolError, name_ranks
from zcoll.operations import Operation, Source, by_code
from zcoll.protocol.failures import from_fields
from zcoll.protocol.steps import Call, Decide, End, FoldNext, Grant
from zcoll.wire import EMPTY, Flag, Message, Payload, parse_fields, parse_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zcoll.errors import CollectiveError
    from zcoll.protocol.steps import Step

# Bytes of chunked operands that rank 0 lets in ahead of the fold. The next one in
# order is always let in, so larger operands come one ahead of the other.
BUDGET = 64 * 1024 * 1024


class Calls:
    """The calls of one group of ranks."""

    def __init__(self, ranks: list[int]) -> None:
        self.ranks = ranks
        self.decided = 0  # the last call that is over
        self.limit: int | None = None  # the last call that can still be decided
        self._open: dict[int, Call] = {}
        self._last = dict.fromkeys(ranks, 0)  # each rank's last contribution
        self._last_call: dict[int, tuple[Operation, int, str]] = {}  # the same, told
        self._held = 0  # bytes of chunked operands granted and not folded

    # --- arrivals ---------------------------------------------------------

    def contribute(self, rank: int, message: Message) -> Iterator[Step]:
        """A replica's part of a call has arrived, or its header ahead of chunks.

        Raises:
            ProtocolError: No replica of this version would send it.
        """
        seq, root = message.seq, message.root
        operation = by_code(message.operation)
        if seq != self._last[rank] + 1:
            raise ProtocolError(f"call {seq} of replica {rank} is out of order")
        if operation.rooted and root not in self.ranks:
            raise ProtocolError(f"root {root} is not in the group")
        self._last[rank] = seq
        self._last_call[rank] = (operation, root, message.site)
        if self.limit is not None and seq > self.limit:
            return
        call = self._open.get(seq)
        if call is None:
            contributors = operation.contributors(self.ranks, root)
            call = self._open[seq] = Call(seq, operation, root, contributors)
        elif (call.operation, call.root) != (operation, root):
            yield from self._mismatch(
                call, rank, operation.describe(root), message.site
            )
            return
        call.sites[rank] = message.site
        self._take(call, rank, message)
        yield from self._advance()

    def _take(self, call: Call, rank: int, message: Message) -> None:
        if message.flags & Flag.POISONED:
            call.errors[rank] = _read_error(message)
        elif not call.operation.contributes(rank, call.root):
            return
        elif message.payload is not None:
            call.payloads[rank] = message.payload
        elif message.flags & Flag.CHUNKED:
            call.sizes[rank] = sum(parse_sizes(message.body))
        else:
            raise ProtocolError(f"replica {rank} sent no payload for {call}")

    def complete(self, rank: int, seq: int, payload: Payload) -> Iterator[Step]:
        """The last chunk of a replica's payload has arrived."""
        call = self._open.get(seq)
        if call is not None and rank in call.sizes:
            call.payloads[rank] = payload
            yield from self._advance()

    def folded(
        self, seq: int, result: Payload | None, error: CollectiveError | None
    ) -> Iterator[Step]:
        """The fold is done with the operands that it was given last."""
        call = self._open.get(seq)
        if call is None:
            return
        call.folding = False
        done = call.contributors[: call.folded]
        self._release(call, sum(call.sizes.pop(rank, 0) for rank in done))
        if result is not None or error is not None:
            yield self._decide(call, result, error)
        yield from self._advance()

    # --- decisions --------------------------------------------------------

    def _advance(self) -> Iterator[Step]:
        while (head := self._open.get(self.decided + 1)) is not None:
            decision = self._try(head)
            if decision is None:
                break
            yield decision
            if isinstance(decision, FoldNext):
                break
        yield from self._grant()

    def _try(self, call: Call) -> Decide | FoldNext | None:
        """What the first open call can do now."""
        if len(call.sites) < len(self.ranks) or call.folding:
            return None
        if call.errors:
            return self._decide(call, None, call.errors[min(call.errors)])
        if call.operation.folds:
            return self._fold_ready(call)
        if call.operation.source is Source.NOBODY:
            return self._decide(call, EMPTY, None)
        payload = call.payloads.get(call.root)
        return None if payload is None else self._decide(call, payload, None)

    def _fold_ready(self, call: Call) -> FoldNext | None:
        operands = []
        for rank in call.contributors[call.folded :]:
            payload = call.payloads.pop(rank, None)
            if payload is None:
                break
            operands.append((rank, payload))
        if not operands:
            return None
        call.folded += len(operands)
        call.folding = True
        return FoldNext(call.seq, operands, call.folded == len(call.contributors))

    def _decide(
        self, call: Call, payload: Payload | None, error: CollectiveError | None
    ) -> Decide:
        self.decided = call.seq
        if call.operation.ends:
            self.limit = call.seq
        del self._open[call.seq]
        self._release(call, call.holding)
        return Decide(call, payload, error)

    def _grant(self) -> Iterator[Grant]:
        """Let chunked payloads in, in order of calls and ranks, while there is room."""
        seq = self.decided + 1
        while (call := self._open.get(seq)) is not None:
            while not call.errors and call.granted < len(call.contributors):
                rank = call.contributors[call.granted]
                if rank not in call.sites:
                    break
                size = 0 if rank in call.payloads else call.sizes.get(rank, 0)
                if size and not self._room(call, size):
                    return
                call.granted += 1
                if size:
                    call.holding += size
                    self._held += size
                    yield Grant(rank, seq)
            seq += 1

    def _room(self, call: Call, size: int) -> bool:
        """Whether a payload fits the budget, or has to be let in anyway."""
        if self._held + size <= BUDGET:
            return True
        ahead = sum(1 for r in call.contributors[: call.granted] if r in call.sizes)
        return call.seq == self.decided + 1 and ahead < 2

    def _release(self, call: Call, size: int) -> None:
        call.holding -= size
        self._held -= size

    # --- endings ----------------------------------------------------------

    def end(self, error: GroupError, after: int) -> Iterator[End]:
        """The group is over after this call, unless it ends sooner anyway."""
        if self.limit is not None and after >= self.limit:
            return
        self.limit = max(after, self.decided)
        for seq in [seq for seq in self._open if seq > self.limit]:
            call = self._open.pop(seq)
            self._release(call, call.holding)
        yield End(error, self.limit)

    def last(self, rank: int) -> int:
        """The number of a rank's last call."""
        return self._last[rank]

    def last_call(self, rank: int) -> str:
        """A rank's last call, and where it was made, for people."""
        if rank not in self._last_call:
            return "nothing yet"
        operation, root, site = self._last_call[rank]
        text = f"{operation.describe(root)}, call {self._last[rank]}"
        return f"{text} ({site})" if site else text

    def last_whole(self, rank: int) -> int:
        """The last call for which no chunk of this rank is missing, nor before."""
        torn = (
            call.seq
            for call in self._open.values()
            if rank in call.sizes
            and rank not in call.payloads
            and rank in call.contributors[call.folded :]
        )
        return min(torn, default=self._last[rank] + 1) - 1

    @property
    def undecided(self) -> bool:
        """Whether a call that rank 0 takes part in may still be decided."""
        last = self._last[self.ranks[0]]
        return self.decided < (last if self.limit is None else min(last, self.limit))

    def pending(self, seq: int | None = None) -> Call | None:
        """This call if it is open, or the first open one."""
        return self._open.get(self.decided + 1 if seq is None else seq)

    def missing(self, seq: int) -> list[int]:
        """The ranks that have not made this call."""
        return [rank for rank in self.ranks if self._last[rank] < seq]

    def _mismatch(self, call: Call, rank: int, other: str, site: str) -> Iterator[Step]:
        rows: dict[tuple[str, str], list[int]] = defaultdict(list)
        for member, place in call.sites.items():
            rows[call.operation.describe(call.root), place].append(member)
        rows[other, site].append(rank)
        lines = [
            f"  {name_ranks(ranks)}: {what}" + (f" at {where}" if where else "")
            for (what, where), ranks in rows.items()
        ]
        waiting = [r for r in self.missing(call.seq) if r != rank]
        if waiting:
            lines.append(f"  {name_ranks(waiting)}: not called yet")
        text = "\n".join(lines)
        error = MismatchError(
            f"replicas disagree on call {call.seq}; the same calls must be made in the "
            f"same order everywhere:\n{text}",
            rank=rank,
        )
        yield from self.end(error, call.seq - 1)


def _read_error(message: Message) -> CollectiveError:
    """Read the error that a replica sent instead of its payload."""
    error = from_fields(parse_fields(message.body))
    if isinstance(error, GroupError):
        raise ProtocolError("a contribution with an error of the group")
    return error

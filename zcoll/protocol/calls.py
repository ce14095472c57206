"""The calls of one group, as rank 0 sees them.

Contributions arrive in any order of ranks. A call is decided when every member's
has arrived, and calls are decided in order. Until then nobody gets a value, so
replicas that call different things are told apart before a payload is looked at.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from zcoll import bundle
from zcoll.errors import CollectiveError, GroupError, ProtocolError
from zcoll.operations import Operation, Who, by_code
from zcoll.protocol.events import HUB
from zcoll.protocol.failures import from_fields
from zcoll.protocol.grants import Grants
from zcoll.protocol.mismatch import mismatch
from zcoll.protocol.outcomes import Outcome, forward, reduced
from zcoll.protocol.plans import check_plan
from zcoll.protocol.roll import Roll
from zcoll.protocol.steps import Call, Decide, End, Fetch, FoldNext
from zcoll.wire import Flag, Message, parse_fields, parse_sizes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from zcoll.errors import MismatchError
    from zcoll.payload import Payload
    from zcoll.protocol.steps import Step


class Calls:
    """The calls of one group.

    Args:
        ranks: Its members' ranks in the world, in the group's order.
        name: What errors call it; "" is the world.

    Attributes:
        roll: Who is in it.
        name: As given.
        torn_down: Whether its members, or those of the group above, have ended it.
        decided: The last call that is over.
        limit: The last call that can still be decided, if there is one.
        mismatch: What its members disagreed on, if they did.
    """

    def __init__(self, ranks: Sequence[int], name: str = "") -> None:
        self.roll = Roll(ranks)
        self.name = name
        self.torn_down = False
        self.decided = 0
        self.limit: int | None = None
        self.mismatch: MismatchError | None = None
        self._open: dict[int, Call] = {}
        self._exits: dict[int, GroupError] = {}  # of members that are gone
        self._grants = Grants()

    # --- arrivals ---------------------------------------------------------

    def contribute(self, rank: int, message: Message) -> Iterable[Step]:
        """A replica's part of a call has arrived, or its header ahead of chunks.

        Raises:
            ProtocolError: No replica of this version would send it.
        """
        seq, root = message.seq, message.root
        operation = by_code(message.operation)
        if operation.rooted and root >= len(self.roll.ranks):
            raise ProtocolError(f"root {root} is not in the group")
        self.roll.note(rank, seq, operation, root, message.tag, message.site)
        if self.limit is not None and seq > self.limit:
            return ()
        call = self._open.get(seq)
        if call is None:
            call = self._open[seq] = self._begin(operation, message)
        elif (
            call.operation is not operation
            or call.root != root
            or call.tag != message.tag
        ):
            waiting = [r for r in self.roll.missing(seq) if r != rank]
            self.mismatch = mismatch(call, rank, message, waiting, self.name)
            return self.end(self.mismatch, seq - 1)
        call.sites[rank] = message.site
        self._take(call, rank, message)
        if rank != HUB and call.contributors[:1] == [rank]:
            return chain(self._fetch(call), self._advance())
        if len(call.sites) < call.expected and not self._grants.waiting:
            return ()  # as for all but the last replica
        return self._advance()

    def _begin(self, operation: Operation, message: Message) -> Call:
        expected = self.roll.expected(message.seq)
        if operation.source is Who.EVERYBODY:
            contributors = list(expected)
        else:
            root = self._root(message.root)
            contributors = operation.contributors(expected, root)
        # fmt: off
        return Call(message.seq, operation, message.root, message.tag,
                    len(expected), contributors)
        # fmt: on

    def _root(self, root: int) -> int:
        """A root's rank in the world."""
        return self.roll.ranks[root] if root < len(self.roll.ranks) else root

    def _take(self, call: Call, rank: int, message: Message) -> None:
        if message.flags & Flag.POISONED:
            call.errors[rank] = _read_error(message)
        elif (
            call.operation.source is not Who.EVERYBODY and rank not in call.contributors
        ):
            return
        elif message.payload is not None:
            self._keep(call, rank, message.payload)
        elif message.flags & Flag.CHUNKED:
            call.sizes[rank] = sum(parse_sizes(message.body))
            self._grants.waiting += 1
        else:
            raise ProtocolError(f"replica {rank} sent no payload for {call}")

    def _keep(self, call: Call, rank: int, payload: Payload) -> None:
        """A payload is complete; a list must have as many items as the group."""
        if call.operation.spread:
            items = [item for item in bundle.split(payload) if item is not None]
            if len(items) != len(self.roll.ranks):
                raise ProtocolError(f"replica {rank} sent {len(items)} items: {call}")
            if call.operation.folding is None:
                call.items[rank] = items
        elif call.operation.makes is not None:
            check_plan(call.operation.makes, payload, len(self.roll.ranks))
        call.payloads[rank] = payload

    def complete(self, rank: int, seq: int, payload: Payload) -> Iterator[Step]:
        """The last chunk of a replica's payload has arrived.

        Raises:
            ProtocolError: It is not what such a call needs.
        """
        call = self._open.get(seq)
        if call is not None and rank in call.sizes:
            self._keep(call, rank, payload)
            yield from self._advance()

    def equip(self, rank: int, message: Message) -> Iterator[Step]:
        """A replica has sent the reduce function of a call, or why it cannot."""
        call = self._open.get(message.seq)
        if call is None or call.contributors[:1] != [rank]:
            return
        if message.flags & Flag.POISONED:
            call.errors.setdefault(rank, _read_error(message))
        else:
            call.function = message.body
        yield from self._advance()

    def folded(
        self, seq: int, results: list[Payload] | None, error: CollectiveError | None
    ) -> Iterator[Step]:
        """The fold is done with the operands that it was given last."""
        call = self._open.get(seq)
        if call is None:
            return
        call.folding = False
        if call.sizes:
            done = call.contributors[: call.folded]
            self._grants.release(call, sum(call.sizes.pop(rank, 0) for rank in done))
        if error is not None:
            yield self._decide(call, Outcome(), error)
        elif results is not None:
            ranks, root = self.roll.ranks, self._root(call.root)
            given = call.operation, root, ranks, call.contributors, results
            yield self._decide(call, reduced(*given))
        yield from self._advance()

    def leave(self, rank: int) -> Iterator[Step]:
        """A replica makes no more calls here; the others go on without it.

        Raises:
            ProtocolError: It has said so before.
        """
        if rank in self.roll.left:
            raise ProtocolError(f"replica {rank} has left its group twice")
        after = self.roll.left[rank] = self.roll.last(rank)
        for call in [call for seq, call in self._open.items() if seq > after]:
            call.expected -= 1
            if rank in call.contributors:
                call.contributors.remove(rank)
                yield from self._fetch(call)
                yield from self._give_up(call)
        yield from self._advance()

    def exit(self, rank: int, error: GroupError) -> Iterator[End]:
        """A replica is gone: what needs more of it cannot be decided any more."""
        self._exits[rank] = error
        # Rank 0 goes last, and has its own functions and payloads at hand.
        last = self.roll.last(rank)
        after = last if rank == HUB else self._last_whole(rank)
        if after < last or rank not in self.roll.left:
            yield from self.end(error, after)

    def _give_up(self, call: Call) -> Iterator[End]:
        """End the group before a call that has come to need more of one who is gone."""
        for rank in call.contributors[:1]:
            if rank in self._exits and _lacks(call, rank):
                yield from self.end(self._exits[rank], call.seq - 1)

    # --- decisions --------------------------------------------------------

    def _fetch(self, call: Call) -> Iterator[Fetch]:
        """Ask for the reduce function, where it is not on its way by itself."""
        if call.operation.folding is None or call.fetched or not call.contributors:
            return
        first = call.contributors[0]
        if first in call.sites and first not in (HUB, self.roll.ranks[0]):
            call.fetched = True
            yield Fetch(first, call.seq)

    def _advance(self) -> Iterator[Step]:
        while (head := self._open.get(self.decided + 1)) is not None:
            decision = self._try(head)
            if decision is None:
                break
            yield decision
            if isinstance(decision, FoldNext):
                break
        if self._grants.waiting:
            yield from self._grants.next(self._open, self.decided + 1)

    def _try(self, call: Call) -> Decide | FoldNext | None:
        """What the first open call can do now."""
        if len(call.sites) < call.expected or call.folding:
            return None
        error = self._error(call)
        if error is not None:
            return self._decide(call, Outcome(), error)
        if call.operation.folding is not None:
            return self._fold_ready(call)
        if any(rank not in call.payloads for rank in call.contributors):
            return None
        return self._decide(call, self._forwarded(call))

    def _error(self, call: Call) -> CollectiveError | None:
        """Why a call that everybody has made fails, as far as it is known."""
        if call.operation.rooted:
            root = self._root(call.root)
            if self.roll.left.get(root, call.seq) < call.seq:
                text = f"its root, replica {root}, has left the group"
                name, seq = call.operation.name, call.seq
                return CollectiveError(text, op=name, seq=seq, rank=root)
        return call.errors[min(call.errors)] if call.errors else None

    def _forwarded(self, call: Call) -> Outcome:
        """What replicas get of payloads that nobody reads on the way."""
        if call.operation.source is Who.NOBODY or call.operation.makes is not None:
            return Outcome()
        ranks, root = self.roll.ranks, self._root(call.root)
        return forward(call.operation, root, ranks, call.payloads, call.items)

    def _fold_ready(self, call: Call) -> FoldNext | None:
        if call.contributors[0] != HUB and call.function is None:
            return None
        operands = []
        payloads = call.payloads
        for rank in call.contributors[call.folded :]:
            if rank not in payloads:
                break
            operands.append((rank, payloads.pop(rank)))
        if not operands:
            return None
        call.folded += len(operands)
        call.folding = True
        return FoldNext(call, operands, call.folded == len(call.contributors))

    def _decide(
        self, call: Call, outcome: Outcome, error: CollectiveError | None = None
    ) -> Decide:
        self.decided = call.seq
        if call.operation.ends:
            self.limit, self.torn_down = call.seq, True
        del self._open[call.seq]
        self._grants.forget(call)
        if error is not None:
            error.group = self.name
        return Decide(call, outcome, error, self.roll.news(call.seq))

    # --- endings ----------------------------------------------------------

    def last_call(self, rank: int) -> str:
        """A member's last call, for people."""
        return self.roll.last_call(rank, self.name)

    def end(self, error: GroupError, after: int) -> Iterator[End]:
        """The group is over after this call, unless it ends sooner anyway."""
        if self.limit is not None and after >= self.limit:
            return
        self.limit = max(after, self.decided)
        for seq in [seq for seq in self._open if seq > self.limit]:
            self._grants.forget(self._open.pop(seq))
        yield End(error, self.limit)

    def _last_whole(self, rank: int) -> int:
        """The last call for which nothing of this rank is missing, nor before."""
        torn = (call.seq for call in self._open.values() if _lacks(call, rank))
        return min(torn, default=self.roll.last(rank) + 1) - 1

    @property
    def made(self) -> int:
        """The last call that everybody has made who has to."""
        roll = self.roll
        last = [roll.last(rank) for rank in roll.ranks if rank not in roll.left]
        return min(last, default=max(roll.left.values(), default=0))

    def undecided(self, rank: int) -> bool:
        """Whether a call that this rank takes part in may still be decided."""
        last = self.roll.last(rank)
        return self.decided < (last if self.limit is None else min(last, self.limit))

    @property
    def open(self) -> bool:
        """Whether a call has begun that is not over."""
        return bool(self._open)

    @property
    def quiet(self) -> bool:
        """Whether everybody has made the same calls, and all of them are over."""
        roll = self.roll
        return not (self._open or roll.left or roll.closed) and self.limit is None

    def conclude(self, seq: int) -> None:
        """The next call has been made and decided all at once; see ``gathering``."""
        assert seq == self.decided + 1
        self.decided = seq

    def pending(self, seq: int | None = None) -> Call | None:
        """This call if it is open, or the first open one."""
        return self._open.get(self.decided + 1 if seq is None else seq)


def _lacks(call: Call, rank: int) -> bool:
    """Whether chunks of this rank's payload, or its reduce function, are missing."""
    if rank not in call.sites or rank not in call.contributors[call.folded :]:
        return False
    first = call.contributors[0] == rank != HUB
    function = call.operation.folding is not None and first and call.function is None
    return function or (rank in call.sizes and rank not in call.payloads)


def _read_error(message: Message) -> CollectiveError:
    """Read the error that a replica sent instead of its payload."""
    error = from_fields(parse_fields(message.body))
    if isinstance(error, GroupError):
        raise ProtocolError("a contribution with an error of the group")
    return error

"""A whole group in one thread and virtual time: real machines, simulated rest."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from typing import TYPE_CHECKING
from unittest import mock

from simulation.simulated_hub import Hub
from simulation.simulated_network import Clock
from simulation.simulated_spoke import Spoke

from zcoll import bundle, codec
from zcoll.engine import folding
from zcoll.protocol import chunks, grants, link

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from programs.program import Program
    from simulation.simulated_node import Node

    from zcoll.protocol.events import Peer
    from zcoll.wire import Kind

LIMIT = 60.0  # virtual seconds after which everything must be at rest


@contextlib.contextmanager
def small_limits() -> Iterator[None]:
    """Limits so small that short values are chunked, windowed and granted.

    And folds without a thread.
    """
    with (
        mock.patch("zcoll.payload.INLINE_LIMIT", 200),
        mock.patch.object(chunks, "CHUNK_SIZE", 100),
        mock.patch.object(link, "WINDOW", 300),
        mock.patch.object(link, "ACK_BYTES", 150),
        mock.patch.object(grants, "BUDGET", 600),
        mock.patch.object(codec, "OUT_OF_BAND", 24),
        mock.patch.object(bundle, "SMALL", 40),
        mock.patch.object(folding, "Worker", AtOnce),
    ):
        yield


class AtOnce:
    """Stands for a worker: it runs its jobs at once."""

    def __init__(self, name: str) -> None:
        self.name = name

    def submit(self, job: Callable[[], None]) -> None:
        """Run a job."""
        job()

    def stop(self, *, wait: bool = True) -> None:
        """There is nothing to stop."""


class Group:
    """All nodes of a group, and what they share.

    Attributes:
        hub: The process that is rank 0, or was it last.
        nodes: Every process that there has been.
        counts: What was injected and checked.
        max_pending: How many calls a program has in flight at most.
        processes: How many there have been.
        auto: The ranks that rank 0 gives, rather than the plan.
    """

    def __init__(
        self,
        random: random.Random,
        plan: Program,
        *,
        duplicates: float = 0.0,
        max_pending: int = 1000,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.random = random
        self.plan = plan
        self.size = plan.size
        self.duplicates = duplicates
        self.max_pending = max_pending
        self.counts: Counter[str] = Counter()
        self.clock = Clock()
        self._trace = trace
        self.processes = 0  # that have been started
        share = random.choice((0.0, 0.0, 0.5, 1.0))
        self.auto = {rank for rank in range(1, self.size) if random.random() < share}
        self.counts["ranks given by rank 0"] += len(self.auto)
        self._peers = 0
        self._waiting: dict[tuple[int, Kind], list[tuple[int, Callable[[], None]]]] = (
            defaultdict(list)
        )
        self.hub = Hub(self, session=77)
        self.spokes = [Spoke(rank, self) for rank in range(1, self.size)]
        self.nodes: list[Node] = [self.hub, *self.spokes]

    def trace(self, line: str) -> None:
        """Write down what happens, for the eyes of somebody."""
        if self._trace is not None:
            self._trace(f"{self.clock.now:9.4f} {line}")

    def new_peer(self) -> Peer:
        """A routing id that no connection has had before."""
        self._peers += 1
        return b"%d" % self._peers

    # --- faults -------------------------------------------------------------------

    def node(self, rank: int) -> Node:
        """The process that is this rank now."""
        return self.hub if rank == 0 else self.spokes[rank - 1]

    def when(self, rank: int, kind: Kind, count: int, job: Callable[[], None]) -> None:
        """Do this at the nth message of a kind between rank 0 and a replica."""
        self._waiting[rank, kind].append((count, job))

    def passes(self, rank: int, kind: Kind) -> None:
        """A message is about to be taken in at one end of a replica's connection."""
        self.counts["messages"] += 1
        waiting = self._waiting.pop((rank, kind), None)
        if waiting is not None:
            later = [(count - 1, job) for count, job in waiting if count > 1]
            if later:
                self._waiting[rank, kind] = later
            for count, job in waiting:
                if count <= 1:
                    job()

    def restart(self, rank: int) -> None:
        """Start a rank again; rank 0 on the same address, as another session."""
        self.trace(f"{rank} is started again")
        if rank == 0:
            self.hub = Hub(self, session=self.hub.session + 1)
            self.hub.pump()
        else:
            self.auto.discard(rank)
            self.spokes[rank - 1] = Spoke(rank, self)
            self.spokes[rank - 1].connect()
        node = self.node(rank)
        self.nodes.append(node)
        node.tick()

    # --- the run ------------------------------------------------------------------

    def run(self) -> None:
        """Let it all happen."""
        self.hub.pump()
        for node in self.nodes:
            self.clock.after(0.0, node.tick)
        for spoke in self.spokes:
            delay = self.random.random() * 0.3
            self.clock.after(delay, lambda s=spoke: s.when_awake(s.connect))  # type: ignore[misc]
        self.clock.run(LIMIT)

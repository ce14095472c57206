"""What must come of a simulated group, whatever went wrong."""

from __future__ import annotations

import random as random_module
from collections import defaultdict
from typing import TYPE_CHECKING

from simulation.simulated_faults import Faults
from simulation.simulated_group import Group, small_limits
from simulation.simulated_hub import Hub
from simulation.simulated_plan import draw_plan

from zcoll.errors import ClosedError, CollectiveError, GroupError, ReplicaLostError
from zcoll.protocol.reports import FRESH

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from simulation.simulated_node import Ending, Node
    from simulation.simulated_plan import PlannedCall

    from zcoll.protocol.link import Link

ENDING_LIMIT = 25.0  # virtual seconds in which every call has ended
CLOSING_LIMIT = 1.5  # virtual seconds that a replica may take to close
SIZES = (1, 2, 2, 2, 3, 3, 4, 5, 8)
FATAL = {"long cut", "long stop", "kill", "restart", "abort", "exit", "mismatch"}


class Scenario:
    """One seed's group, its faults, and the checks of what came out."""

    def __init__(
        self, seed: int, *, trace: Callable[[str], None] | None = None
    ) -> None:
        random = random_module.Random(seed)
        size = random.choice(SIZES)
        plan = draw_plan(random, size)
        self.group = Group(
            random,
            plan,
            duplicates=random.choice((0.0, 0.0, 0.1)),
            max_pending=random.choice((1, 2, 4, 1000)),
            trace=trace,
        )
        self.group.trace(f"{size} replicas, {len(plan)} calls")
        self.faults = Faults(random, self.group)

    def run(self) -> Counter[str]:
        """Run and check; return the counts of what was injected and checked."""
        with small_limits():
            self.faults.inject()
            self.group.run()
        self._check()
        return self.group.counts

    # --- every replica ------------------------------------------------------------

    def _check(self) -> None:
        counts = self.group.counts
        counts["replicas"] += len(self.group.nodes)
        sessions: dict[int, list[Node]] = defaultdict(list)
        for node in self.group.nodes:
            self._check_end(node)
            self._check_values(node)
            counts["answers to who is missing"] += node.reports
            if node.joined:
                sessions[node.replica._admission.session].append(node)
            elif not node.dead:
                counts["never joined"] += 1
                assert self.faults.done & FATAL, f"{node.rank} has not joined"
        for nodes in sessions.values():
            self._check_agreement(nodes)
        self._check_how_far(self.group.nodes)

    def _check_end(self, node: Node) -> None:
        """It has closed, every call has ended, and nothing is kept."""
        if node.dead:
            return
        assert node.closed, f"{node.rank} has not closed"
        assert node.ended_at < node.born_at + ENDING_LIMIT, f"{node.rank} hung"
        assert sorted(node.endings) == list(range(1, node.made + 1))
        if node.joined and node.leaves_after is None:
            assert node.made == len(node.plan), f"{node.rank} has not made its calls"
        if not self.faults.done and node.rank:
            assert node.closed_at - node.left_at < CLOSING_LIMIT
        if not node.gave_up:
            _check_nothing_kept(node)

    def _check_values(self, node: Node) -> None:
        """What ended well, or by an error of the call, is what a plain fold says."""
        for seq, ending in node.endings.items():
            self.group.counts["calls checked"] += 1
            if not isinstance(ending, GroupError):
                self.group.counts["calls with a value or an error of their own"] += 1
                planned = self.group.plan[seq - 1]
                expected = planned.expected()
                assert _told(ending) == _told(expected), f"call {seq} of {node.rank}"
                if isinstance(ending, CollectiveError):
                    _check_names(ending, seq, planned)

    # --- all together -------------------------------------------------------------

    def _check_agreement(self, nodes: list[Node]) -> None:
        """Each call has ended the same way everywhere, but for those who were lost."""
        told: dict[int, Ending | str] = {}
        for node in nodes:
            for seq, ending in sorted(node.endings.items()):
                if self._is_own(node, seq, ending):
                    continue
                words = _told(ending)
                same = told.setdefault(seq, words) == words
                assert same, f"call {seq} of {node.rank}"
            _check_order(node)

    def _is_own(self, node: Node, seq: int, ending: Ending) -> bool:
        """Whether a call ended by what only this replica can say; it must be so."""
        if isinstance(ending, ClosedError):
            assert node.leaves_after is not None or node.gave_up
            return True
        if not isinstance(ending, GroupError):
            return False
        if not isinstance(ending, ReplicaLostError):
            assert self.faults.excuse(ending, seq), f"call {seq}: {ending}"
            return False
        rank = node.rank if ending.rank == 0 else ending.rank or 0
        too_late = ending.rank == 0 and node.leaves_after is not None  # rank 0 has left
        excused = too_late or self._may_be_lost(rank)
        assert excused, f"call {seq} of {node.rank}: {ending}"
        return ending.rank in (0, node.rank)

    def _may_be_lost(self, rank: int) -> bool:
        """Whether this replica and rank 0 may have given each other up."""
        mine = [node for node in self.group.nodes if node.rank in (0, rank)]
        return self.faults.excuse_loss(rank) or any(
            node.dead or node.gave_up or not node.joined for node in mine
        )

    def _check_how_far(self, nodes: list[Node]) -> None:
        """With at most one thing that ends the group, it is known where it ends."""
        turns = {"exit", "mismatch"} & self.faults.done
        lost = any(self._may_be_lost(node.rank) for node in nodes)
        if lost or self.faults.aborted or len(turns) > 1:
            return
        self.group.counts["groups whose last call is known"] += 1
        last = len(self.group.plan)
        if turns == {"exit"}:
            last = self.faults.turning_point
        elif turns == {"mismatch"}:
            last = self.faults.turning_point - 1
        hurries = any(node.hurries for node in nodes)
        for node in nodes:
            if node.leaves_after is None:
                decided = _decided(node)
                assert decided == last or (hurries and decided < last), (
                    f"{node.rank} has {decided} calls of {last}"
                )


def _decided(node: Node) -> int:
    """The last call before the group's end."""
    over = [s for s, ending in node.endings.items() if isinstance(ending, GroupError)]
    return min(over, default=node.made + 1) - 1


def _check_order(node: Node) -> None:
    """After a call that rank 0 has failed with the group's end, none ends well.

    Where rank 0 was lost it may be so: a small outcome overtakes a large one.
    """
    over = [
        seq
        for seq, ending in node.endings.items()
        if isinstance(ending, GroupError)
        and not isinstance(ending, ClosedError)
        and not (isinstance(ending, ReplicaLostError) and ending.rank in (0, node.rank))
    ]
    for seq in range(min(over, default=node.made) + 1, node.made + 1):
        ended = seq in node.endings
        assert isinstance(node.endings.get(seq), GroupError) or not ended


def _told(ending: object) -> str:
    """An ending, without what is each replica's own."""
    if isinstance(ending, CollectiveError):
        return repr(
            (type(ending), ending.message, ending.rank, ending.remote_traceback)
        )
    if isinstance(ending, GroupError):
        return repr((type(ending), str(ending), ending.rank, ending.pid))
    return repr(ending)


def _check_names(error: CollectiveError, seq: int, planned: PlannedCall) -> None:
    assert (error.op, error.seq, error.site) == (
        planned.operation.name,
        seq,
        planned.site,
    )


def _check_nothing_kept(node: Node) -> None:
    assert not node.link.owes_payloads
    if node.leaves_after is None:
        assert not len(node.replica.calling)
        assert not node.link._assembling
    if isinstance(node, Hub):
        coordinator = node.coordinator
        assert coordinator.drained
        assert not coordinator.decisions.groups.world.open
        assert coordinator.decisions.groups.world._grants.held == 0
        coordinator.reports.tick(node.closed_at + FRESH + 1.0)
        assert not coordinator.reports._queries
        assert not coordinator.reports._latest
        for member in coordinator.membership.members:
            _check_empty(member.link)


def _check_empty(link: Link) -> None:
    assert link.idle
    assert not link._assembling
    assert not link._replay
    assert link._in_flight == 0

"""What must come of a simulated group, whatever went wrong."""

from __future__ import annotations

import random as random_module
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from programs.program import Failed
from simulation.simulated_faults import Faults
from simulation.simulated_group import Group, small_limits
from simulation.simulated_hub import Hub
from simulation.simulated_plan import draw_plan, operation_of, site_of
from values import same

from zcoll.errors import ClosedError, CollectiveError, GroupError, ReplicaLostError
from zcoll.protocol.members import State
from zcoll.protocol.reports import FRESH

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from programs.program import Program
    from simulation.simulated_node import Key, Node

    from zcoll.protocol.link import Link

ENDING_LIMIT = 25.0  # virtual seconds in which every call has ended
CLOSING_LIMIT = 1.5  # virtual seconds that a replica may take to close
SIZES = (1, 2, 2, 2, 3, 3, 4, 5, 8)
FATAL = {"long cut", "long stop", "kill", "restart", "abort", "exit", "mismatch"}


class Scenario:
    """One seed's group, its faults, and the checks of what came out.

    Args:
        seed: Decides everything.
        plan: The program, if it is given.
        faults: Whether something goes wrong.
        trace: Takes lines that say what happens.
    """

    def __init__(
        self,
        seed: int,
        *,
        plan: Program | None = None,
        faults: bool = True,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        random = random_module.Random(seed)
        plan = plan or draw_plan(random, random.choice(SIZES))
        self.group = Group(
            random,
            plan,
            duplicates=random.choice((0.0, 0.0, 0.1)),
            max_pending=random.choice((1, 2, 4, 1000)),
            trace=trace,
        )
        self.group.trace(f"{plan.size} replicas, {len(plan.steps)} steps")
        self.faults = Faults(random, self.group)
        self._injects = faults

    def run(self) -> Counter[str]:
        """Run and check; return the counts of what was injected and checked."""
        with small_limits():
            if self._injects:
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
        assert sorted(node.endings) == sorted(node.seqs)
        if node.joined and node.leaves_after is None:
            assert node.made == len(node.order), f"{node.rank} has not made its calls"
        has_left = node.rank in self.group.plan.leavers  # rank 0 may go before it
        if not self.faults.done and node.rank and not has_left:
            assert node.closed_at - node.left_at < CLOSING_LIMIT
        if not node.gave_up:
            _check_nothing_kept(node)

    def _check_values(self, node: Node) -> None:
        """What ended well, or by an error of the call, is what the model says."""
        plan, counts = self.group.plan, self.group.counts
        expected = plan.expected(node.rank)
        for number, ending in node.endings.items():
            counts["calls checked"] += 1
            if isinstance(ending, GroupError):
                continue
            counts["calls with a value or an error of their own"] += 1
            step = plan.steps[number]
            counts[f"of these {operation_of(step).name}"] += 1
            text = f"step {number} of {node.rank}: {ending!r}"
            right = expected.get(number)  # a teardown gives nothing
            if not isinstance(ending, CollectiveError):
                assert same(right, ending), f"{text}, not {right!r}"
                continue
            assert isinstance(right, Failed), text
            assert type(ending).__name__ == right.kind, text
            assert right.rank in (None, ending.rank), text
            names = operation_of(step).name, node.seqs[number][1], site_of(number, step)
            assert (ending.op, ending.seq, ending.site) == names, text

    # --- all together -------------------------------------------------------------

    def _check_agreement(self, nodes: list[Node]) -> None:
        """Each call has ended the same way everywhere, but for those who were lost."""
        told: dict[int, str] = {}
        for node in nodes:
            for number, ending in sorted(node.endings.items()):
                if self._is_own(node, number, ending):
                    continue
                words = _told(ending)
                agreed = told.setdefault(number, words) == words
                assert agreed, f"step {number} of {node.rank}: {words}, {told[number]}"
            _check_order(node)

    def _is_own(self, node: Node, number: int, ending: Any) -> bool:
        """Whether a call ended by what only this replica can say; it must be so."""
        if isinstance(ending, ClosedError):
            gone = node.leaves_after is not None or node.gave_up
            assert gone or self.group.plan.may_be_torn_down(number), f"step {number}"
            return True
        if not isinstance(ending, GroupError):
            return False
        if not isinstance(ending, ReplicaLostError):
            assert self.faults.excuse(ending, number), f"step {number}: {ending}"
            return False
        rank = node.rank if ending.rank == 0 else ending.rank or 0
        too_late = ending.rank == 0 and node.leaves_after is not None  # rank 0 has left
        excused = too_late or self._may_be_lost(rank)
        assert excused, f"step {number} of {node.rank}: {ending}"
        return ending.rank in (0, node.rank)

    def _may_be_lost(self, rank: int) -> bool:
        """Whether this replica and rank 0 may have given each other up."""
        mine = [node for node in self.group.nodes if node.rank in (0, rank)]
        return self.faults.excuse_loss(rank) or any(
            node.dead or node.gave_up or not node.joined for node in mine
        )

    def _check_how_far(self, nodes: list[Node]) -> None:
        """With at most one thing that ends groups, it is known what ends with it."""
        turns = {"exit", "mismatch"} & self.faults.done
        lost = any(self._may_be_lost(node.rank) for node in nodes)
        if lost or self.faults.aborted or len(turns) > 1:
            return
        self.group.counts["groups whose last calls are known"] += 1
        for node in nodes:
            for number, ending in node.endings.items():
                ends = self.faults.by_exit(number), self.faults.by_mismatch(number)
                torn_down = self.group.plan.may_be_torn_down(number)
                if node.leaves_after is not None or None in ends or torn_down:
                    continue
                over = isinstance(ending, GroupError)
                assert over == any(ends), f"step {number} of {node.rank}: {ending!r}"


def _check_order(node: Node) -> None:
    """After a call that rank 0 has failed with the group's end, none ends well.

    Where rank 0 was lost it may be so: a small outcome overtakes a large one.
    """
    endings: dict[Key, Any] = {
        key: node.endings[number]
        for number, key in node.seqs.items()
        if number in node.endings
    }
    for (group, seq), ending in endings.items():
        if not isinstance(ending, GroupError) or isinstance(ending, ClosedError):
            continue
        if isinstance(ending, ReplicaLostError) and ending.rank in (0, node.rank):
            continue
        for (other, later), other_ending in endings.items():
            if other == group and later > seq:
                assert isinstance(other_ending, GroupError), f"call {later} of {group}"


def _told(ending: object) -> str:
    """An ending, without what is each replica's own: its value."""
    if isinstance(ending, CollectiveError):
        return repr(
            (type(ending), ending.message, ending.rank, ending.remote_traceback)
        )
    if isinstance(ending, GroupError):
        return repr((type(ending), str(ending), ending.rank, ending.pid))
    return "a value"


def _check_nothing_kept(node: Node) -> None:
    assert not node.link.owes_payloads
    if node.leaves_after is None:
        assert not len(node.replica.calling)
        assert not node.link._assembling
    if isinstance(node, Hub):
        coordinator = node.coordinator
        assert coordinator.drained
        members = coordinator.membership.members
        if any(each.state is State.PRESENT for each in members[1:]):  # who may wait
            for _, calls in coordinator.decisions.groups:
                assert not calls._open
                assert calls._grants.held == 0
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

"""Scenarios: what goes wrong in a simulated group, and what must come of it."""

from __future__ import annotations

import dataclasses
import random as random_module
from typing import TYPE_CHECKING

from simulation.simulated_group import Group, Node, small_limits
from simulation.simulated_plan import PlannedCall, draw_plan

from zcoll.errors import (
    CollectiveError,
    GroupError,
    MismatchError,
    ReplicaExitedError,
    ReplicaLostError,
)
from zcoll.operations import BARRIER, BROADCAST

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

CLOSING_LIMIT = 1.5  # virtual seconds that a replica may take to close
SCENARIOS = ("calm", "calm", "cuts", "cuts", "exit", "mismatch", "kill", "freeze")


class Scenario:
    """One seed's group, its faults, and the checks of what came out."""

    def __init__(
        self, seed: int, *, trace: Callable[[str], None] | None = None
    ) -> None:
        self.random = random_module.Random(seed)
        size = self.random.choice((1, 2, 2, 3, 3, 4, 5, 8, 16))
        plan = draw_plan(self.random, size)
        self.kind = self.random.choice(SCENARIOS) if size > 1 else "calm"
        rate = self.random.choice((0.0, 0.0, 0.1))
        self.group = Group(self.random, plan, duplicates=rate, trace=trace)
        self.victim = self.random.randrange(size)
        self.turning_point = self.random.randint(1, len(plan) - 1)
        self.group.trace(
            f"{self.kind}: {size} replicas, {len(plan)} calls, "
            f"victim {self.victim}, turning point {self.turning_point}"
        )

    def run(self) -> Counter[str]:
        """Run and check; return the counts of what was injected and checked."""
        self._inject()
        with small_limits():
            self.group.run()
        self._check()
        return self.group.counts

    # --- faults -------------------------------------------------------------------

    def _inject(self) -> None:
        for planned in self.group.plan:
            self.group.counts.update(i.defect for i in planned.inputs if i.defect)
        if self.kind == "cuts" or (self.group.spokes and self.random.random() < 0.3):
            for _ in range(self.random.randint(1, 6)):
                self.group.clock.at(self.random.random() * 1.2, self._cut)
        at = self.random.random() * 0.8
        if self.kind == "exit":
            self.group.counts["exits"] += 1
            self.group.nodes[self.victim].leaves_after = self.turning_point
            self.group.nodes[self.victim].hurries = self.random.random() < 0.3
        elif self.kind == "mismatch":
            self.group.counts["mismatches"] += 1
            self._disagree()
        elif self.kind == "kill":
            self.group.clock.at(at, self._kill)
        elif self.kind == "freeze":
            self.victim = self.victim or 1
            self.group.clock.at(at, self._freeze)

    def _cut(self) -> None:
        spoke = self.random.choice(self.group.spokes)
        if spoke.peer is not None and spoke.running:
            self.group.counts["cuts"] += 1
            spoke.cut(back_after=self.random.random() * 0.5)

    def _disagree(self) -> None:
        node = self.group.nodes[self.victim]
        index = self.turning_point - 1
        planned = node.plan[index]
        other = BROADCAST if planned.operation is BARRIER else BARRIER
        node.plan[index] = dataclasses.replace(planned, operation=other, root=0)

    def _kill(self) -> None:
        node = self.group.nodes[self.victim]
        if not node.closed:
            self.group.trace(f"{node.rank} is killed")
            self.group.counts["kills"] += 1
            node.dead = True
            if self.victim == 0:
                self.group.hub.cut_all()
            else:
                self.group.spokes[self.victim - 1].cut(back_after=None)

    def _freeze(self) -> None:
        """Stop a process; its connection is given up; it wakes up too late."""
        spoke = self.group.spokes[self.victim - 1]
        if spoke.running and spoke.peer is not None:
            self.group.trace(f"{spoke.rank} is frozen")
            self.group.counts["freezes"] += 1
            spoke.frozen = True
            spoke.cut(back_after=self.random.random())

            def wake() -> None:
                self.group.trace(f"{spoke.rank} wakes up")
                spoke.frozen = False
                spoke.think()

            self.group.clock.after(self.random.uniform(3.0, 6.0), wake)

    # --- checks -------------------------------------------------------------------

    def _check(self) -> None:
        for node in self.group.nodes:
            assert node.refusal is None, f"{node.rank} was refused: {node.refusal}"
            if not node.dead:
                assert node.closed, f"{node.rank} has not closed"
            self._check_values(node)
            self.group.counts["reports"] += node.reports
        survivors = [node for node in self.group.nodes if self._survives(node)]
        if not any(node.made for node in survivors):
            assert self.kind in ("kill", "freeze"), "the group is not complete"
            return
        for node in survivors:
            assert sorted(node.endings) == list(range(1, node.made + 1))
            assert node.made == len(node.plan)
            self._check_nothing_kept(node)
            if node.rank and self.kind not in ("kill", "freeze"):
                assert node.closed_at - node.left_at < CLOSING_LIMIT
        self._check_agreement(survivors)

    def _survives(self, node: Node) -> bool:
        if self.kind == "kill" and not node.made:
            return False  # it was still waiting for the group
        return node.rank != self.victim or self.kind in ("calm", "cuts", "mismatch")

    def _check_values(self, node: Node) -> None:
        """What ended well, or by an error of the call, is what a plain fold says."""
        for seq, ending in node.endings.items():
            if not isinstance(ending, GroupError):
                self.group.counts["checked"] += 1
                planned = self.group.plan[seq - 1]
                expected = planned.expected()
                assert _told(ending) == _told(expected), f"call {seq} of {node.rank}"
                if isinstance(ending, CollectiveError):
                    _check_names(ending, seq, planned)

    def _check_agreement(self, survivors: list[Node]) -> None:
        """The group has ended after the same call, with the same words."""
        decided = {_decided(node) for node in survivors}
        words = {
            (type(ending), str(ending), ending.rank)
            for node in survivors
            for ending in node.endings.values()
            if isinstance(ending, GroupError)
        }
        whole = len(self.group.plan)
        if self.kind in ("calm", "cuts"):
            assert decided == {whole}
        elif self.kind == "exit":
            assert len(decided) == 1
            if self.group.nodes[self.victim].hurries:
                assert max(decided) <= self.turning_point
            else:
                assert decided == {self.turning_point}
            self._check_words(words, ReplicaExitedError)
        elif self.kind == "mismatch":
            assert len(decided) == 1
            assert max(decided) < self.turning_point
            self._check_words(words, MismatchError)
        elif self.victim == 0:
            self._check_words(words, ReplicaLostError)
        else:
            assert len(decided) <= 1
            if decided != {whole}:
                self._check_words(words, ReplicaLostError)

    def _check_words(
        self, words: set[tuple[type[GroupError], str, int | None]], kind: type
    ) -> None:
        assert {word[0] for word in words} <= {kind}
        if self.kind == "mismatch" or self.victim:
            assert len(words) == 1
        assert {word[2] for word in words} <= {self.victim} or (self.kind == "mismatch")

    def _check_nothing_kept(self, node: Node) -> None:
        replica, link = node.replica, node.link
        assert not replica._pending
        assert not link.owes_payloads
        assert not link._assembling
        if node.rank == 0 and node.rank != self.victim:
            coordinator = self.group.hub.coordinator
            assert coordinator.drained
            assert not coordinator.calls._open
            assert coordinator.calls._held == 0
            for member in coordinator.membership.members:
                assert not member.link._assembling


def _decided(node: Node) -> int:
    """The last call before the group's end, which must end all that follow."""
    over = [s for s, ending in node.endings.items() if isinstance(ending, GroupError)]
    first = min(over, default=node.made + 1)
    assert sorted(over) == list(range(first, node.made + 1))
    return first - 1


def _told(ending: object) -> object:
    """An ending, without what is each replica's own."""
    if isinstance(ending, CollectiveError):
        return type(ending), ending.message, ending.rank, ending.remote_traceback
    return ending


def _check_names(error: CollectiveError, seq: int, planned: PlannedCall) -> None:
    assert (error.op, error.seq, error.site) == (
        planned.operation.name,
        seq,
        planned.site,
    )

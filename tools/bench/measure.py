"""All variants in turns, so that what disturbs the machine disturbs all of them."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figures import Samples
from bench.group import BrokenGroupError, Group
from bench.orders import Run
from bench.payloads import LARGE
from bench.startup import Joins, join_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.cells import Cell
    from bench.variants import Variant

MOST_MEMORY = 12 << 30  # bytes that the processes of one group may hold
MOST_ROUNDS = 2000  # of one turn

Results = dict[tuple["Cell", str], Samples]


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure.

    Attributes:
        seconds: For each variant in each cell, in all turns together.
        turns: How often each variant's turn comes.
        limit: Seconds of the whole, after which no cell is begun.
    """

    seconds: float
    turns: int
    limit: float = math.inf

    def rounds(self, taken: float) -> tuple[int, int]:
        """Turns, and rounds in each, if a round takes so long."""
        affordable = max(1, int(self.seconds / taken))
        turns = min(self.turns, affordable)
        return turns, min(MOST_ROUNDS, affordable // turns)


def why_not(variant: Variant, cell: Cell, memory: int = MOST_MEMORY) -> str:
    """Why a variant is left out of a cell, or nothing.

    Args:
        variant: What would be measured.
        cell: Where.
        memory: Bytes that may be used.
    """
    if cell.what not in variant.does:
        return "no such call"
    if cell.payload.name == "dict" and not variant.takes_dict:
        return "no objects"
    if variant.operands(cell.size) * cell.payload.size > memory:
        return "memory"
    return ""


def free_memory() -> int:
    """Bytes that may be used now: not more than there are."""
    meminfo = Path("/proc/meminfo")
    for line in meminfo.read_text().splitlines() if meminfo.exists() else ():
        if line.startswith("MemAvailable:"):
            return min(MOST_MEMORY, int(line.split()[1]) * 1024)
    return MOST_MEMORY


class Bench:
    """The groups of all variants of one size at a time, and their turns."""

    def __init__(self, variants: Sequence[Variant], effort: Effort) -> None:
        self._variants = variants
        self._effort = effort
        self._groups: dict[str, Group] = {}
        self._broken: dict[str, str] = {}
        self._deadline = time.monotonic() + effort.limit
        self.results: Results = {}
        self.joins: Joins = {}

    def measure(self, cells: Sequence[Cell]) -> None:
        """Measure everything, small payloads first."""
        for size in sorted({cell.size for cell in cells}):
            chosen = [cell for cell in cells if cell.size == size]
            chosen.sort(key=lambda cell: cell.payload.size)
            began = time.monotonic()
            try:
                if not self._late():
                    self._start(size, chosen)
                for cell in chosen:
                    self._measure_cell(cell)
            finally:
                self._stop()
            taken = time.monotonic() - began
            sys.stderr.write(f"{size} replicas: measured in {taken:.0f} s\n")

    def _late(self) -> bool:
        return time.monotonic() > self._deadline

    def _start(self, size: int, cells: Sequence[Cell]) -> None:
        for variant in self._variants:
            if all(why_not(variant, cell) for cell in cells):
                continue
            try:
                group = self._groups[variant.name] = Group(variant, size)
            except BrokenGroupError as error:
                self._give_up(variant.name, error)
            else:
                taken = join_time(group.started)
                self.joins.setdefault((variant.name, size), []).append(taken)

    def _stop(self) -> None:
        while self._groups:
            self._groups.popitem()[1].close()
        self._broken.clear()

    def _give_up(self, name: str, error: BrokenGroupError) -> None:
        sys.stderr.write(f"{name} failed: {error}\n")
        self._broken[name] = "failed"
        if name in self._groups:
            self._groups.pop(name).close()

    def _measure_cell(self, cell: Cell) -> None:
        plans: dict[str, tuple[int, int]] = {}
        memory = free_memory()
        for variant in self._variants:
            name = variant.name
            samples = self.results[cell, name] = Samples()
            samples.left_out = why_not(variant, cell, memory)
            if self._late():
                samples.left_out = "time"
            samples.left_out = samples.left_out or self._broken.get(name, "")
            if not samples.left_out:
                plans[name] = self._warm_up(cell, name, samples)
        for turn in range(self._effort.turns):
            for name, (turns, rounds) in plans.items():
                if turn < turns:
                    self._take_turn(cell, name, rounds)

    def _warm_up(self, cell: Cell, name: str, samples: Samples) -> tuple[int, int]:
        """See that results are right and how long a round takes.

        A round of a large payload that takes all the time there is counts; there
        will be no other.
        """
        order = Run(cell.what, cell.payload.name, 1, check=True)
        first = Samples()
        if not self._run(cell, name, order, first):
            return 0, 0
        taken = first.times[0]
        if taken > self._effort.seconds and cell.payload.size >= LARGE:
            self.results[cell, name] = first
            return 0, 0
        again = Samples()
        for _ in range(3):
            order = Run(cell.what, cell.payload.name, 1)
            if not self._run(cell, name, order, again):
                return 0, 0
            if sum(again.times) > 0.2 * self._effort.seconds:
                break
        samples.peak = max(first.peak, again.peak)
        return self._effort.rounds(min(again.times))

    def _take_turn(self, cell: Cell, name: str, rounds: int) -> None:
        if name not in self._broken:
            order = Run(cell.what, cell.payload.name, rounds)
            self._run(cell, name, order, self.results[cell, name])

    def _run(self, cell: Cell, name: str, order: Run, samples: Samples) -> bool:
        try:
            samples.add(self._groups[name].run(order))
        except BrokenGroupError as error:
            self._give_up(name, error)
            self.results[cell, name].left_out = "failed"
            return False
        return True

"""Provokes faults again and again, and takes the times."""

from __future__ import annotations

import statistics
import traceback
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from faults.measured.row import Load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faults.measured.row import Row
    from faults.phases import Way
    from faults.puppets import Nursery


@dataclass
class Result:
    """What came of a row on one way.

    Attributes:
        row: The row.
        way: The way.
        seconds: The times of the runs in which all was as promised.
        failures: What was not as promised in the others.
    """

    row: Row
    way: Way
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The usual time."""
        return statistics.median(self.seconds)

    @property
    def worst(self) -> float:
        """The longest time."""
        return max(self.seconds)

    @property
    def holds(self) -> bool:
        """Whether everything was as promised."""
        bound = self.row.bound(self.way)
        late = bound is not None and bool(self.seconds) and self.worst > bound
        return bool(self.seconds) and not self.failures and not late

    def __str__(self) -> str:
        bound = self.row.bound(self.way)
        limit = "no limit" if bound is None else f"limit {bound:g} s"
        text = f"{self.way.name:4} {self.row.key}: {limit}"
        if self.seconds:
            text += f", median {self.median:.3f} s, worst {self.worst:.3f} s"
        if self.failures:
            text += f", {len(self.failures)} failed: {self.failures[0]}"
        return text if self.holds else f"{text}  DOES NOT HOLD"


def run_rows(
    nursery: Nursery,
    rows: Sequence[Row],
    ways: Sequence[Way],
    runs: int,
    tell: Callable[[str], None],
) -> list[Result]:
    """Run every row on every way, and tell what has come of each.

    Those that only wait run side by side; those whose time is short run alone.
    """
    results = [Result(row, way) for row in rows for way in ways if way.name in row.ways]
    by_load: dict[Load, list[Result]] = defaultdict(list)
    for result in results:
        by_load[result.row.load].append(result)
    for load, some in by_load.items():
        with ThreadPoolExecutor(load.value) as threads:
            tasks = [
                (one, threads.submit(_run, nursery, one))
                for one in some
                for _ in range(runs)
            ]
            for number, (one, task) in enumerate(tasks, 1):
                task.result()
                if number % runs == 0:
                    tell(str(one))
    return results


def _run(nursery: Nursery, result: Result) -> None:
    try:
        seconds = result.row.measure(nursery, result.way)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
        result.failures.append(text)
    else:
        result.seconds.append(seconds)

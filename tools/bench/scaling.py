"""``tools/bench/scale``: how the cost of a call grows with the replicas.

Once with real processes on this machine, once with rank 0's machine alone, fed by
replicas that are only simulated.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench import tables
from bench.coordinator_alone import Alone, measure_alone
from bench.figures import Figures, Samples
from bench.group import Group
from bench.measure import Effort
from bench.orders import Run
from bench.startup import join_time
from bench.variants import VARIANTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SIZES = (2, 8, 32, 64, 128, 256)
SIZES_ALONE = (16, 64, 256, 1024, 4096)
CALLS = (("allreduce", "int"), ("allreduce", "64KB"), ("gather", "int"))
EFFORT = Effort(seconds=2.0, turns=1)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a call costs between so many processes.

    Attributes:
        call: The call and its payload.
        figures: As in the other tables.
        rank_0: Seconds of processor time at rank 0, for each replica.
    """

    call: str
    figures: Figures
    rank_0: float


@dataclass(frozen=True, slots=True)
class Crowd:
    """A group of so many processes: how long it takes to join, and its calls."""

    size: int
    joining: float
    costs: list[Cost]


def measure_crowd(variant: str, size: int) -> Crowd:
    """Start a group, and make all calls."""
    group = Group(VARIANTS[variant], size)
    try:
        costs = [_cost(group, size, what, name) for what, name in CALLS]
    finally:
        group.close()
    return Crowd(size, join_time(group.started), costs)


def _cost(group: Group, size: int, what: str, payload: str) -> Cost:
    group.run(Run(what, payload, 1, check=True))
    trial = Samples()
    trial.add(group.run(Run(what, payload, 3)))
    _, rounds = EFFORT.rounds(min(trial.times))
    samples = Samples()
    ran = group.run(Run(what, payload, rounds))
    samples.add(ran)
    figures = samples.figures(1)
    assert figures is not None
    return Cost(f"{what} {payload}", figures, ran[0].cpu / rounds / size)


def crowds_table(crowds: Sequence[Crowd]) -> str:
    """A row for each number of processes."""
    calls = [cost.call for cost in crowds[0].costs]
    head = ["processes", "joining, s"]
    for call in calls:
        head += [f"{call}, ms", "rank 0, us/replica"]
    rows = []
    for crowd in crowds:
        row = [str(crowd.size), f"{crowd.joining:.2f}"]
        for cost in crowd.costs:
            row += [f"{cost.figures.median * 1e3:.3g}", f"{cost.rank_0 * 1e6:.1f}"]
        rows.append(row)
    return tables.table(head, rows)


def alone_table(found: Iterable[Alone]) -> str:
    """A row for each number of simulated replicas."""
    return tables.table(
        ["replicas", "a call, ms", "us/replica", "memory, KB", "bytes/replica"],
        [
            [
                str(each.size),
                f"{each.median * 1e3:.3g}",
                f"{each.median * 1e6 / each.size:.2f}",
                f"{each.peak / 1e3:,.0f}",
                f"{each.peak / each.size:,.0f}",
            ]
            for each in found
        ],
    )


def main() -> None:
    """Measure both, and print the tables."""
    parser = argparse.ArgumentParser(prog="tools/bench/scale", description=__doc__)
    parser.add_argument("--variant", choices=VARIANTS, default="zcoll-ipc")
    parser.add_argument("--processes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--simulated", nargs="*", type=int, default=SIZES_ALONE)
    parser.add_argument("--output", type=Path, help="a file for the figures, as JSON")
    options = parser.parse_args()
    crowds = []
    for size in options.processes:
        crowds.append(measure_crowd(options.variant, size))
        sys.stderr.write(f"{size} processes: measured\n")
    alone = [measure_alone(size) for size in options.simulated]
    if crowds:
        sys.stdout.write(f"{options.variant}\n\n{crowds_table(crowds)}\n")
    if alone:
        sys.stdout.write(alone_table(alone))
    if options.output is not None:
        found = {
            "variant": options.variant,
            "processes": [asdict(each) for each in crowds],
            "simulated": [asdict(each) for each in alone],
        }
        options.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

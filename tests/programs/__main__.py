"""Runs random programs on real groups, and compares every result with the model."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter

import click
from group import Crew
from programs.drawing import LARGE_NOW_AND_THEN, draw_program
from programs.play import Player
from programs.program import Call

import zcoll


@click.command()
@click.option("--seeds", default=5000, show_default=True, help="How many.")
@click.option("--first", default=0, show_default=True, help="The first seed.")
def main(seeds: int, first: int) -> None:
    """Run random programs on groups of 1 to 5 replicas, each in a thread."""
    counts: Counter[str] = Counter()
    failures = 0
    start = time.monotonic()
    for size in range(1, 6):
        with Crew(size) as crew:
            for seed in range(first + size - 1, first + seeds, 5):
                program = draw_program(random.Random(seed), size, LARGE_NOW_AND_THEN)

                def task(comm: zcoll.Communicator) -> int:
                    return Player(program, comm.dup()).check()  # noqa: B023 - at once

                try:
                    counts["results"] += sum(crew.run(task))
                except Exception as error:
                    failures += 1
                    click.echo(
                        f"seed {seed}: {type(error).__name__}: {error}", err=True
                    )
                    break  # this group's replicas are out of step
                for step in program.steps:
                    name = step.operation if isinstance(step, Call) else ""
                    counts[name or type(step).__name__.lower()] += 1
    click.echo(f"{seeds:,} programs in {time.monotonic() - start:.1f} s")
    for name, count in sorted(counts.items()):
        click.echo(f"  {name:44} {count:9,}")
    click.echo(f"{failures} of them failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()

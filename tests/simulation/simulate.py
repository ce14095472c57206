"""Runs simulated groups: ``--seed N`` traces one, ``--seeds COUNT`` counts many."""

from __future__ import annotations

import sys
import time
from collections import Counter

import click
from simulation.simulated_faults import Scenario


@click.command()
@click.option("--seed", type=int, help="Run this one, and trace it.")
@click.option("--seeds", type=int, default=1000, show_default=True, help="How many.")
@click.option("--first", type=int, default=0, show_default=True, help="The first seed.")
def main(seed: int | None, seeds: int, first: int) -> None:
    """Simulate groups of replicas, with faults, and check what comes of them."""
    if seed is not None:
        click.echo(dict(Scenario(seed, trace=click.echo).run()))
        return
    counts: Counter[str] = Counter()
    start = time.monotonic()
    for number in range(first, first + seeds):
        try:
            counts.update(Scenario(number).run())
        except Exception as error:
            counts["FAILED"] += 1
            click.echo(f"seed {number}: {type(error).__name__}: {error}", err=True)
    click.echo(f"{seeds} seeds in {time.monotonic() - start:.1f} s")
    for name, count in sorted(counts.items()):
        click.echo(f"  {name:12} {count}")
    sys.exit(1 if counts["FAILED"] else 0)


if __name__ == "__main__":
    main()

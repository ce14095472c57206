"""Runs simulated groups: ``--seed N`` traces one, ``--seeds COUNT`` counts many."""

from __future__ import annotations

import functools
import multiprocessing
import sys
import time
from collections import Counter

import click
from simulation.simulated_checks import Scenario

BATCH = 100  # seeds that a process takes at a time


@click.command()
@click.option("--seed", type=int, help="Run this one, and trace it.")
@click.option("--seeds", type=int, default=1000, show_default=True, help="How many.")
@click.option("--first", type=int, default=0, show_default=True, help="The first seed.")
@click.option("--faultless", is_flag=True, help="Nothing goes wrong.")
@click.option("--jobs", type=int, default=2, show_default=True, help="Processes.")
def main(seed: int | None, seeds: int, first: int, faultless: bool, jobs: int) -> None:
    """Simulate groups of replicas, with faults, and check what comes of them."""
    if seed is not None:
        counts = Scenario(seed, faults=not faultless, trace=click.echo).run()
        for name, count in sorted(counts.items()):
            click.echo(f"  {name:44} {count:9,}")
        return
    start, end = time.monotonic(), first + seeds
    batches = [range(at, min(at + BATCH, end)) for at in range(first, end, BATCH)]
    counts = Counter()
    failures: list[str] = []
    run = functools.partial(_run, faults=not faultless)
    with multiprocessing.Pool(jobs) as pool:
        for counted, failed in pool.imap_unordered(run, batches):
            counts.update(counted)
            failures += failed
            for line in failed:
                click.echo(line, err=True)
    click.echo(f"{seeds:,} seeds in {time.monotonic() - start:.1f} s")
    for name, count in sorted(counts.items()):
        click.echo(f"  {name:44} {count:9,}")
    click.echo(f"{len(failures)} of them failed; trace one by tools/simulate --seed N")
    sys.exit(1 if failures else 0)


def _run(seeds: range, *, faults: bool) -> tuple[Counter[str], list[str]]:
    """Run some seeds; return what was counted, and a line for each that failed."""
    counts: Counter[str] = Counter()
    failures = []
    for seed in seeds:
        try:
            counts.update(Scenario(seed, faults=faults).run())
        except Exception as error:
            failures.append(f"seed {seed}: {type(error).__name__}: {error}")
    return counts, failures


if __name__ == "__main__":
    main()

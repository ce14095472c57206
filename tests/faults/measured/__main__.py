"""Provokes faults, and measures how soon everybody is told: ``tools/faults``."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import click
from faults.measured.page import page
from faults.measured.rows import all_rows
from faults.measured.runs import run_rows
from faults.phases import Way
from faults.puppets import Nursery

from zcoll.launchers.settings import Liveness


@click.command()
@click.option("--runs", type=click.IntRange(1), default=20, show_default=True)
@click.option("--transport", type=click.Choice(["ipc", "tcp"]), help="Only this way.")
@click.option("--only", multiple=True, metavar="NAME", help="Only this row.")
@click.option("--list", "names", is_flag=True, help="Print the names of the rows.")
@click.option("--write", type=click.Path(dir_okay=False, path_type=Path))
def main(
    runs: int,
    transport: str | None,
    only: tuple[str, ...],
    names: bool,
    write: Path | None,
) -> None:
    """Provoke faults of real processes, with the default settings."""
    rows = all_rows()
    if names:
        click.echo("\n".join(row.key for row in rows))
        return
    unknown = set(only) - {row.key for row in rows}
    if unknown:
        raise click.BadParameter(f"no row is named {', '.join(sorted(unknown))}")
    chosen = [row for row in rows if not only or row.key in only]
    ways = [
        Way(name, Liveness()) for name in ("ipc", "tcp") if transport in (None, name)
    ]
    with contextlib.closing(Nursery()) as nursery:
        results = run_rows(nursery, chosen, ways, runs, click.echo)
    if write is not None:
        write.write_text(page(results, runs))
    failed = [result for result in results if not result.holds]
    click.echo(f"{len(results) - len(failed)} of {len(results)} rows hold")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

"""``tools/bench/run``: measure zcoll beside its peers."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bench import cells as all_cells
from bench.measure import Bench, Effort
from bench.report import Report
from bench.tables import write
from bench.variants import VARIANTS, Variant

if TYPE_CHECKING:
    from collections.abc import Sequence


def _options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/bench/run",
        description="Measure zcoll beside every peer that is installed, in turns.",
        epilog="A cell is CALL/PAYLOAD/REPLICAS, such as allreduce/1MB/8 or "
        "'gather/*/2'. Variants: " + ", ".join(VARIANTS) + ".",
    )
    parser.add_argument("--only", nargs="+", metavar="VARIANT", choices=VARIANTS)
    parser.add_argument("--cells", nargs="+", metavar="CELL", help="default: all")
    parser.add_argument(
        "--seconds", type=float, default=1.5, help="for a variant in a cell"
    )
    parser.add_argument("--turns", type=int, default=5, help="of each variant")
    parser.add_argument(
        "--short", action="store_true", help="a few cells, to see that it works"
    )
    parser.add_argument("--output", type=Path, help="a directory for JSON and tables")
    return parser.parse_args(arguments)


def _variants(names: Sequence[str] | None) -> list[Variant]:
    chosen = [VARIANTS[name] for name in names or VARIANTS]
    for variant in chosen:
        if not variant.installed:
            sys.stderr.write(f"{variant.name} is not installed, and left out\n")
    return [variant for variant in chosen if variant.installed]


def main() -> None:
    """Measure what the command line asks for."""
    options = _options()
    cells = list(all_cells.SHORT if options.short else all_cells.ALL)
    if options.cells:
        try:
            cells = all_cells.select(all_cells.ALL, options.cells)
        except ValueError as error:
            sys.exit(str(error))
    effort = Effort(options.seconds, options.turns)
    if options.short:
        effort = Effort(0.1, 2)
    variants = _variants(options.only)
    bench = Bench(variants, effort)
    report = Report.of(bench.measure(cells), variants)
    sys.stdout.write(write(report))
    if options.output is not None:
        report.save(options.output)


if __name__ == "__main__":
    main()

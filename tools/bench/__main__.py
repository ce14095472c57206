"""``tools/bench/run``: measure zcoll beside its peers."""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bench import cells as all_cells
from bench import report, tables
from bench.measure import Bench, Effort
from bench.startup import add_joins, imports
from bench.variants import VARIANTS, Variant, installed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.cells import Cell

_SHORT = Effort(seconds=0.1, turns=2)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/bench/run",
        description="Measure zcoll beside every peer that is installed, in turns.",
        epilog="A cell is CALL/PAYLOAD/REPLICAS, such as allreduce/1MB/8 or "
        "'gather/*/2'. Variants: " + ", ".join(VARIANTS) + ".",
    )
    parser.add_argument(
        "--only", nargs="+", metavar="VARIANT", choices=VARIANTS, default=VARIANTS
    )
    parser.add_argument(
        "--cells", nargs="+", metavar="CELL", help="these cells, and no start-up"
    )
    parser.add_argument(
        "--short", action="store_true", help="a little of all, to see that it works"
    )
    parser.add_argument(
        "--seconds", type=float, default=1.5, help="for a variant in a cell"
    )
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="begin no cell after them"
    )
    parser.add_argument("--turns", type=int, default=5, help="of each variant")
    parser.add_argument(
        "--output", type=Path, help="a directory for figures, tables and plots"
    )
    return parser.parse_args()


def _variants(names: Sequence[str]) -> list[Variant]:
    chosen = [VARIANTS[name] for name in names]
    for variant in chosen:
        if not variant.installed:
            sys.stderr.write(f"{variant.name} is not installed, and left out\n")
    return [variant for variant in chosen if variant.installed]


def _cells(options: argparse.Namespace) -> Sequence[Cell]:
    if not options.cells:
        return all_cells.SHORT if options.short else all_cells.ALL
    try:
        return all_cells.select(all_cells.ALL, options.cells)
    except ValueError as error:
        sys.exit(str(error))


def _save(found: report.Report, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found.as_json(), indent=1)
    (directory / "bench.json").write_text(text + "\n")
    (directory / "bench.md").write_text(tables.write(found))
    if installed("matplotlib"):
        from bench import plots  # noqa: PLC0415 - where it is installed

        plots.save(found, directory)
    else:
        sys.stderr.write("matplotlib is not installed: no plots\n")


def _start_up(
    repeats: int, variants: Sequence[Variant], bench: Bench
) -> dict[str, float]:
    """Measure joining a few times more, and imports; give the imports."""
    add_joins(variants, repeats - 1, bench.joins)
    return imports(repeats)


def main() -> None:
    """Measure what the command line asks for."""
    options = _options()
    cells = _cells(options)
    effort = (
        _SHORT
        if options.short
        else Effort(options.seconds, options.turns, options.minutes * 60)
    )
    variants = _variants(options.only)
    bench = Bench(variants, effort)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    imported: dict[str, float] = {}
    try:
        bench.measure(cells)
        if not options.cells:
            imported = _start_up(1 if options.short else effort.turns, variants, bench)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: what follows was measured until then\n")
    found = report.make(variants, bench.results, bench.joins, imported)
    sys.stdout.write(tables.write(found))
    if options.output is not None:
        _save(found, options.output)


if __name__ == "__main__":
    main()

"""A run's figures as tables in Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench import bars
from bench.cells import SIZES
from bench.payloads import LARGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from bench.bars import Verdict
    from bench.cells import Cell
    from bench.figures import Figures
    from bench.report import Report

FIGURES = {
    "median": "median",
    "p99": "99th percentile",
    "cpu": "processor time of all replicas",
}

OURS = "zcoll-"  # what the names of zcoll's own variants begin with


def microseconds(seconds: float) -> str:
    """A time, with three digits that matter."""
    value = seconds * 1e6
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; all columns but the first are aligned to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def by_cell(
    report: Report, what: str, show: Callable[[Figures, Cell], str], names: list[str]
) -> str:
    """One figure of some variants, for one kind of call."""
    cells = [cell for cell in report.cells if cell.what == what]
    cells.sort(key=lambda cell: (cell.payload.size, cell.payload.name != "int"))
    names = [name for name in names if _measured(report, name, cells)]
    rows = []
    for cell in cells:
        row = [f"{cell.payload.name}, N={cell.size}"]
        for name in names:
            found = report.figures.get((cell, name))
            why = report.left_out.get((cell, name), "")
            row.append(show(found, cell) if found else _absence(why))
        rows.append(row)
    return table([what, *names], rows)


def _measured(report: Report, name: str, cells: Sequence[Cell]) -> bool:
    return any((cell, name) in report.figures for cell in cells)


def _absence(why: str) -> str:
    return why if why in ("memory", "failed", "time") else "-"


def ratios(report: Report, ours: str) -> str:
    """The medians of a variant of zcoll as shares of all the others'."""

    def show(found: Figures, cell: Cell) -> str:
        own = report.figures.get((cell, ours))
        return f"{own.median / found.median:.2f}" if own else "-"

    others = [name for name in report.variants if name != ours]
    return by_cell(report, "allreduce", show, others)


def verdicts(found: Iterable[Verdict]) -> str:
    """Bars by row, replicas by column: what was found, and what is allowed."""
    rows: dict[tuple[str, str], dict[int, Verdict]] = {}
    for each in found:
        rows.setdefault((each.subject, each.what), {})[each.size] = each
    sizes = sorted({size for row in rows.values() for size in row})
    lines = [
        [subject, what, *(_verdict(row.get(size)) for size in sizes)]
        for (subject, what), row in rows.items()
    ]
    return table(["bar", "what", *(f"N={size}" for size in sizes)], lines)


def _verdict(found: Verdict | None) -> str:
    if found is None:
        return ""
    word = "met" if found.met else "**missed**"
    return f"{found.found:.2f} ({found.at_most:g}) {word}"


def memory(report: Report) -> str:
    """What rank 0 needs for an allreduce of large arrays, in operands."""
    cells = [
        cell
        for cell in report.cells
        if cell.what == "allreduce" and cell.payload.size >= LARGE
    ]
    rows = []
    for name in report.variants:
        held = (report.operands(name, c.payload.name, c.size) for c in cells)
        rows.append([name, *("-" if each is None else f"{each:.1f}" for each in held)])
    return table(["", *(f"{c.payload.name}, N={c.size}" for c in cells)], rows)


def imports(report: Report) -> str:
    """Imports in fresh interpreters, in milliseconds."""
    taken = report.imports
    return table(list(taken), [[f"{each * 1e3:.0f}" for each in taken.values()]])


def joins(report: Report) -> str:
    """How long groups took to come together, in milliseconds."""
    rows = []
    for name in report.variants:
        taken = [report.joins.get((name, size)) for size in SIZES]
        rows.append([name, *("-" if t is None else f"{t * 1e3:.1f}" for t in taken)])
    head = ["", *(f"N={size}" for size in SIZES)]
    return table(head, rows)


def write(report: Report) -> str:
    """All tables, each under a heading."""
    return "\n".join(f"### {title}\n\n{text}" for title, text in _parts(report))


def times(report: Report, what: str, figure: str) -> str:
    """One figure of all variants for one kind of call, in microseconds."""
    return by_cell(
        report,
        what,
        lambda found, _: microseconds(getattr(found, figure)),
        report.variants,
    )


def _parts(report: Report) -> Iterator[tuple[str, str]]:
    for what in dict.fromkeys(cell.what for cell in report.cells):
        for figure, name in FIGURES.items():
            title = f"{what}: {name}, microseconds a call"
            yield title, times(report, what, figure)
    for ours in report.variants:
        if ours.startswith(OURS):
            yield f"{ours} as a share of the others", ratios(report, ours)
    if any(cell.payload.size >= LARGE for cell in report.cells):
        yield "memory of rank 0, operands", memory(report)
    if report.imports:
        yield "import, ms", imports(report)
    yield "joining, ms", joins(report)
    found = [*bars.ratios(report), *bars.ceilings(report)]
    if found:
        yield "bars: found (at most)", verdicts(found)

"""A run's figures as tables in Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.cells import Cell
    from bench.report import Report


def microseconds(seconds: float) -> str:
    """A time, with three digits that matter."""
    value = seconds * 1e6
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; all columns but the first are aligned to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _field(report: Report, cell: Cell, name: str, figure: str) -> str:
    found = report.figures.get((cell, name))
    if found is None:
        why = report.left_out.get((cell, name), "")
        return {"memory": "memory", "failed": "failed"}.get(why, "")
    return microseconds(getattr(found, figure))


def times(report: Report, what: str, figure: str) -> str:
    """One figure of all variants, for one kind of call, in microseconds."""
    cells = [cell for cell in report.cells if cell.what == what]
    cells.sort(key=lambda cell: (cell.payload.size, cell.payload.name != "int"))
    names = [
        name
        for name in report.variants
        if any((cell, name) in report.figures for cell in cells)
    ]
    rows = [
        [
            f"{cell.payload.name}, N={cell.size}",
            *(_field(report, cell, name, figure) for name in names),
        ]
        for cell in cells
    ]
    return table([f"{what}", *names], rows)


def write(report: Report) -> str:
    """All tables."""
    parts = []
    for what in dict.fromkeys(cell.what for cell in report.cells):
        parts.append(f"{what}, median of a call in microseconds\n\n")
        parts.append(times(report, what, "median") + "\n")
    return "".join(parts)

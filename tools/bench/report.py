"""What one run has found, and on what."""

from __future__ import annotations

import os
import platform
import statistics
from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import TYPE_CHECKING, Any

from bench import bars
from bench.cells import Cell
from bench.payloads import PAYLOADS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.figures import Figures
    from bench.measure import Results
    from bench.startup import Joins
    from bench.variants import Variant

_PACKAGES = ("zcoll", "pyzmq", "numpy", "adaptdl", "mpi4py", "mpich", "torch")


@dataclass(slots=True)
class Report:
    """The figures of a run.

    Attributes:
        machine: What it ran on: names and values.
        variants: What was measured, in the order of the tables.
        figures: By cell and variant.
        left_out: Why there are none, by cell and variant.
        imports: Seconds of an import, by module.
        joins: Seconds for a group to come together, by variant and size.
    """

    machine: dict[str, str]
    variants: list[str]
    figures: dict[tuple[Cell, str], Figures] = field(default_factory=dict)
    left_out: dict[tuple[Cell, str], str] = field(default_factory=dict)
    imports: dict[str, float] = field(default_factory=dict)
    joins: dict[tuple[str, int], float] = field(default_factory=dict)

    @property
    def cells(self) -> list[Cell]:
        """The cells, each once."""
        return list(
            dict.fromkeys(cell for cell, _ in {**self.figures, **self.left_out})
        )

    def median(self, name: str, what: str, payload: str, size: int) -> float | None:
        """The median of a variant in a cell, in seconds, if it was measured."""
        found = self.figures.get((Cell(what, PAYLOADS[payload], size), name))
        return None if found is None else found.median

    def operands(self, name: str, payload: str, size: int) -> float | None:
        """Memory that rank 0 needed for an allreduce, in operands, if measured."""
        cell = Cell("allreduce", PAYLOADS[payload], size)
        found = self.figures.get((cell, name))
        return None if found is None else found.peak / cell.payload.size

    def as_json(self) -> dict[str, Any]:
        """All of it, for programs."""
        verdicts = [*bars.ratios(self), *bars.ceilings(self)]
        return {
            "machine": self.machine,
            "variants": self.variants,
            "figures": [
                {**_place(cell, name), **asdict(found)}
                for (cell, name), found in self.figures.items()
            ],
            "left_out": [
                {**_place(cell, name), "why": why}
                for (cell, name), why in self.left_out.items()
            ],
            "imports": self.imports,
            "joins": [
                {"variant": name, "replicas": size, "seconds": taken}
                for (name, size), taken in self.joins.items()
            ],
            "bars": [{**asdict(each), "met": each.met} for each in verdicts],
        }


def make(
    variants: Sequence[Variant],
    results: Results,
    joins: Joins,
    imports: dict[str, float],
) -> Report:
    """The report of what has been measured here."""
    report = Report(_machine(), [each.name for each in variants], imports=imports)
    report.joins = {key: statistics.median(taken) for key, taken in joins.items()}
    for (cell, name), samples in results.items():
        found = samples.figures(cell.calls_at_once)
        if found is None:
            report.left_out[cell, name] = samples.left_out
        else:
            report.figures[cell, name] = found
    return report


def _place(cell: Cell, name: str) -> dict[str, Any]:
    where = {"what": cell.what, "payload": cell.payload.name, "replicas": cell.size}
    return {**where, "variant": name}


def _machine() -> dict[str, str]:
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processors": str(os.cpu_count()),
        "Python": platform.python_version(),
        **versions,
    }

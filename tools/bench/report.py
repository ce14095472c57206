"""What one run has found, and on what."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from bench.cells import Cell
from bench.figures import Figures
from bench.payloads import PAYLOADS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.measure import Results
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
    """

    machine: dict[str, str]
    variants: list[str]
    figures: dict[tuple[Cell, str], Figures]
    left_out: dict[tuple[Cell, str], str]

    @classmethod
    def of(cls, results: Results, variants: Sequence[Variant]) -> Report:
        """The report of what has been measured here."""
        figures = {}
        left_out = {}
        for (cell, name), samples in results.items():
            found = samples.figures(cell.calls_at_once)
            if found is None:
                left_out[cell, name] = samples.left_out
            else:
                figures[cell, name] = found
        return cls(_machine(), [each.name for each in variants], figures, left_out)

    @property
    def cells(self) -> list[Cell]:
        """The cells in the order in which they were measured."""
        return list(
            dict.fromkeys(cell for cell, _ in {**self.figures, **self.left_out})
        )

    def median(self, name: str, what: str, payload: str, size: int) -> float | None:
        """The median of a variant in a cell, in seconds, if it was measured."""
        found = self.figures.get((Cell(what, PAYLOADS[payload], size), name))
        return None if found is None else found.median

    def as_json(self) -> dict[str, Any]:
        """All of it, for programs."""
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
        }

    def save(self, directory: Path) -> None:
        """Write it into a directory."""
        directory.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.as_json(), indent=1)
        (directory / "bench.json").write_text(text + "\n")


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
        "system": platform.platform(),
        "processors": str(len(os.sched_getaffinity(0))),
        "python": platform.python_version(),
        **versions,
    }

"""A run's medians as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib import pyplot

from bench.payloads import PAYLOADS

if TYPE_CHECKING:
    from pathlib import Path

    from bench.report import Report

_COLOURS = {  # one hue a library
    "zcoll-ipc": "tab:red",
    "zcoll-tcp": "tab:pink",
    "zcoll-lane": "darkred",
    "limit": "black",
    "limit-loop": "grey",
    "adaptdl": "tab:green",
    "mpi4py": "tab:blue",
    "mpi4py-buffers": "tab:cyan",
    "torch-object": "tab:orange",
    "torch-tensor": "gold",
}
_DASHED = ("limit", "limit-loop", "mpi4py-buffers", "torch-tensor")  # no objects


def save(report: Report, directory: Path) -> None:
    """Draw the medians of allreduce, one panel for each number of replicas."""
    sizes = sorted({cell.size for cell in report.cells if cell.what == "allreduce"})
    if not sizes:
        return
    mpl.rcParams["svg.hashsalt"] = "zcoll"  # the same figures, the same file
    figure, panels = pyplot.subplots(
        *(1, len(sizes)), figsize=(4 + 3 * len(sizes), 5), sharey=True, squeeze=False
    )
    for panel, size in zip(panels[0], sizes, strict=True):
        _draw(panel, report, size)
    panels[0][0].set_ylabel("median of an allreduce, microseconds")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=5, frameon=False)
    figure.tight_layout(rect=(0, 0.1, 1, 1))
    figure.savefig(directory / "allreduce.svg", metadata={"Date": None})
    figure.savefig(directory / "allreduce.png", dpi=110)
    pyplot.close(figure)


def _draw(panel: Any, report: Report, size: int) -> None:
    for name in report.variants:
        medians = [report.median(name, "allreduce", kind, size) for kind in PAYLOADS]
        panel.plot(
            list(PAYLOADS),
            [float("nan") if each is None else each * 1e6 for each in medians],
            label=name,
            color=_COLOURS[name],
            linestyle="--" if name in _DASHED else "-",
            marker="o",
            markersize=3,
            linewidth=2 if name.startswith("zcoll") else 1,
        )
    panel.set_yscale("log")
    panel.set_title(f"{size} replicas")
    panel.grid(visible=True, which="major", alpha=0.3)
    panel.tick_params(axis="x", rotation=45)

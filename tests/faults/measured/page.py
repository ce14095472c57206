"""Writes the page of the table."""
# ruff: noqa: E501 - the lines of a page may be longer than those of a program

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faults.measured.runs import Result

HEAD = """# What zcoll does about faults

Each row was provoked with real processes and the default settings, {runs} times on each way: over ipc (no secret), and
over TCP with a secret. The time is from the fault to the moment at which the last survivor was told, in seconds. What
is promised beside the time (which error, that it names the replica, its host, process and last call, that later calls
raise the same, that values are right) is checked in every run.

Run a row with `tools/faults --only NAME`, and all of them with `tools/faults --write docs/faults.md`. The settings that
the limits follow from are `heartbeat_interval` (2 s), `heartbeat_timeout` (10 s) and `reconnect_window` (2 s, TCP).
Measured on {machine}.

| fault | what zcoll does | `--only` | ipc: limit | median | worst | TCP: limit | median | worst |
|---|---|---|---|---|---|---|---|---|
"""


def page(results: Sequence[Result], runs: int) -> str:
    """Write the table of all results."""
    machine = f"{os.cpu_count()} cores, {platform.system()}, "
    machine += f"Python {platform.python_version()}"
    rows: dict[str, list[Result]] = {}
    for result in results:
        rows.setdefault(result.row.key, []).append(result)
    lines = [_line(some) for some in rows.values()]
    return HEAD.format(runs=runs, machine=machine) + "\n".join(lines) + "\n"


def _line(results: Sequence[Result]) -> str:
    row = results[0].row
    cells = [row.fault, row.answer, f"`{row.key}`"]
    by_way = {result.way.name: result for result in results}
    for name in ("ipc", "tcp"):
        cells.extend(_cells(by_way.get(name)))
    return f"| {' | '.join(cells)} |"


def _cells(result: Result | None) -> list[str]:
    if result is None:
        return ["-", "-", "-"]
    bound = result.row.bound(result.way)
    limit = "-" if bound is None else f"{bound:g}"
    if not result.seconds:
        return [limit, "failed", "failed"]
    worst = f"{result.worst:.2f}"
    return [limit, f"{result.median:.2f}", worst if result.holds else f"**{worst}**"]

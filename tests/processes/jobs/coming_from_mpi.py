"""Runs the mpi4py column of docs/coming-from.md, and reports what each row gives."""

from __future__ import annotations

from typing import Any

from coming_from import names, read_rows, run, show
from mpi4py import MPI
from report import report


def shown(result: Any) -> Any:
    if not isinstance(result, MPI.Comm):
        return show(result)
    return [f"group of {result.size}", result.rank] if result else None


world = MPI.COMM_WORLD
given = names(world.rank, world.size)
results = []
for row in read_rows():
    if row.table == "mpi4py" and "Abort" not in row.theirs:  # it kills the job
        results.append([row.table, row.theirs, shown(run(row.theirs, given))])
report(given["rank"], results)

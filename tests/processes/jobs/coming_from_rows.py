"""Runs the zcoll column of docs/coming-from.md, and reports what each row gives."""

from __future__ import annotations

import os

from coming_from import names, read_rows, run, show
from report import report

import zcoll

rank, size = (
    int(os.environ["ZCOLL_REPLICA_RANK"]),
    int(os.environ["ZCOLL_NUM_REPLICAS"]),
)
results = []
given = {}
table = ""
for row in read_rows():
    if row.table != table:
        assert not zcoll.is_initialized(), f"the table before {row.table} has no end"
        table = row.table
        given = {**names(rank, size), "zcoll": zcoll}
    if zcoll.is_initialized():
        given["comm"] = zcoll.world()
    results.append([row.table, row.theirs, show(run(row.ours, given))])
assert not zcoll.is_initialized()
report(rank, results)

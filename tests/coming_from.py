"""The tables of docs/coming-from.md, read and run."""

from __future__ import annotations

import ast
import operator
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import zcoll

PAGE = Path(__file__).parent.parent / "docs" / "coming-from.md"


class Row(NamedTuple):
    """A row: which table it stands in, what they write, and what we write."""

    table: str
    theirs: str
    ours: str


def read_rows() -> list[Row]:
    """Read all rows of all tables."""
    rows, table = [], ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            table = line.removeprefix("## ").strip("`")
        elif line.startswith("|") and not line.startswith("|---"):
            theirs, ours = (cell.strip() for cell in line.strip("|").split(" | "))
            if re.fullmatch("`.*`", ours):
                rows.append(Row(table, theirs.strip("`"), ours.strip("`")))
    return rows


def names(rank: int, size: int) -> dict[str, Any]:
    """What the rows mean by their names."""
    return {
        "np": np,
        "operator": operator,
        "rank": rank,
        "size": size,
        "x": rank + 1,
        "xs": [10 * rank + item for item in range(size)],
        "fn": lambda a, b: 10 * a + b,
        "array": np.array([rank, -rank]),
        "addr": "127.0.0.1",
        "port": int(os.environ.get("TEST_PORT", "0")),
        "step": 3,
    }


def run(code: str, given: dict[str, Any]) -> Any:
    """Run a row's code, and return its value, or what it sets a name to."""
    *before, last = ast.parse(code).body
    exec(compile(ast.Module(before, []), "<page>", "exec"), given)  # noqa: S102
    if isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), "<page>", "eval"), given)  # noqa: S307
    exec(compile(ast.Module([last], []), "<page>", "exec"), given)  # noqa: S102
    if isinstance(last, ast.Assign) and isinstance(last.targets[0], ast.Name):
        return given[last.targets[0].id]
    return None


def show(result: Any) -> Any:
    """A result as it goes into a report."""
    if isinstance(result, zcoll.Communicator):
        return [f"group of {result.num_replicas}", result.replica_rank]
    if isinstance(result, np.ndarray | np.generic):
        return result.tolist()
    if isinstance(result, tuple):
        return list(result)
    return "a function" if callable(result) else result

"""What stands in the README runs, and gives what it says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from job import ROOT, run_job

if TYPE_CHECKING:
    from pathlib import Path

BEFORE = """
import asyncio, os
import zcoll
from report import report

zcoll.initialize()
batches = [[1.0] * 4, [2.0] * 2, [4.0]][zcoll.replica_rank() :]
loss_of = max
"""
AFTER = """
report(
    rank,
    [
        first,
        None if shares is None else [list(each) for each in shares],
        neighbours,
        mean,
        seen,
        asyncio.run(both()),
    ],
)
zcoll.teardown()
"""


def blocks(heading: str) -> str:
    """The Python of one section."""
    text = (ROOT / "README.md").read_text()
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return "\n".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL))


def test_ten_lines(tmp_path: Path, results: Path) -> None:
    script = tmp_path / "ten_lines.py"
    script.write_text(blocks("Ten lines").split("\nwith zcoll.connect")[0])
    finished = run_job(script, 4, results).check()
    rest = "10 ### {'lr': 0.1} {'loss': [0, 1, 2, 3]}"
    lines = sorted(finished.output.splitlines())
    assert lines == [f"[{rank}] {rank} {rest}" for rank in range(4)]


def test_the_whole_family(tmp_path: Path, results: Path) -> None:
    script = tmp_path / "family.py"
    script.write_text(BEFORE + blocks("The whole family") + AFTER)
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'processes' / 'jobs'}"}
    finished = run_job(script, 3, results, environment=environment).check()
    shares, both = [[0], [0, 1], [0, 1, 2]], [3, "012"]
    assert finished.reports == {
        # Rank 0 has three batches, the others two and one: it ends up alone.
        0: [0, shares, [0, 1], 4.0, 6, both],
        1: [1, None, [0, 1], pytest.approx((2 * 2.0 + 4.0) / 3), 6, both],
        2: [3, None, [2], pytest.approx((4 * 1.0 + 2 * 2.0 + 4.0) / 7), 6, both],
    }

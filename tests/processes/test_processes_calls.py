"""Calls between real processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from job import run_job

if TYPE_CHECKING:
    from pathlib import Path

ways = pytest.mark.parametrize("options", [[], ["--tcp"]], ids=["ipc", "tcp"])


@ways
@pytest.mark.parametrize("size", [1, 2, 5])
def test_results_follow_the_order_of_ranks_and_calls(
    results: Path, size: int, options: list[str]
) -> None:
    finished = run_job("order.py", size, results, options=options).check()

    def fold(prefix: str) -> str:
        text = f"{prefix}0"
        for rank in range(1, size):
            text = f"({text}{prefix}{rank})"
        return text

    expected = {
        "fold": fold(""),
        "futures": [fold(str(step)) for step in reversed(range(30))],
        "roots": list(range(size)),
        "ranks of __main__.Mine": list(range(size)),
        "large": [sum(range(size)), sum(range(size)), True],
        "lambda": 100 + size - 1,
    }
    assert finished.reports == dict.fromkeys(range(size), expected)


@ways
def test_a_thousand_mixed_calls_of_eight_replicas(
    results: Path, options: list[str]
) -> None:
    finished = run_job("mixed.py", 8, results, options=options, timeout=55).check()
    assert sorted(finished.reports) == list(range(8))
    for found in finished.reports.values():
        assert found["wrong"] == []
        assert found["calls"] == 1000
        assert found["async"] > 400


def test_the_secret_of_the_environment_is_used(results: Path) -> None:
    environment = {"ZCOLL_SECRET": "a secret that is long enough"}
    finished = run_job("order.py", 3, results, environment=environment).check()
    assert finished.reports[2]["roots"] == [0, 1, 2]
    assert "long enough" not in finished.output + finished.errors


def test_32_replicas_join(results: Path) -> None:
    """How long that takes is measured by ``tools/bench/scale``."""
    finished = run_job("joining.py", 32, results).check()
    assert sorted(finished.reports) == list(range(32))
    last_start = max(start for start, _ in finished.reports.values())
    for _, joined in finished.reports.values():
        assert joined > last_start  # none is in the group before it is complete


@ways
def test_rank_0_never_holds_all_large_operands_at_once(
    results: Path, options: list[str]
) -> None:
    """With the others' arrays let in one after another, a few are in memory."""
    size = 32
    finished = run_job("memory.py", 8, results, f"{size}", options=options).check()
    for rank, (more, right) in finished.reports.items():
        assert right
        limit = 6 if rank == 0 else 3
        assert more < limit * size * 1024 * 1024, (rank, more)


def test_a_thousand_splits_leave_no_growth(results: Path) -> None:
    finished = run_job("splits.py", 2, results, "1000").check()
    for found in finished.reports.values():
        assert found["kept"][0] == found["kept"][1]
        assert (found["threads"], found["descriptors"]) == (0, 0)
        assert found["memory"] < 4 << 20  # 10,000 take no more

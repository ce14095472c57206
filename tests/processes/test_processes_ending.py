"""How programs end, and that others learn of it."""

from __future__ import annotations

import sys
from statistics import median
from typing import TYPE_CHECKING

import pytest
from job import JOBS, run_job, run_program
from ports import tcp_port

if TYPE_CHECKING:
    from pathlib import Path

ways = pytest.mark.parametrize("options", [[], ["--tcp"]], ids=["ipc", "tcp"])
MEBI = 1 << 20


@ways
@pytest.mark.parametrize("leaver", [0, 1, 2])
def test_what_was_sent_before_an_exit_still_counts(
    results: Path, leaver: int, options: list[str]
) -> None:
    """Rank 0 even has the calls of the others to decide before it may go."""
    finished = run_job(
        "ending.py", 3, results, "at once", f"{leaver}", options=options
    ).check()
    assert sorted(finished.reports) == sorted({0, 1, 2} - {leaver})
    expected = [[0, step, 1, step, 2, step] for step in range(20)]
    texts = set()
    for values, (kind, rank, _, text) in finished.reports.values():
        assert values == expected
        assert kind == "ReplicaExitedError"
        # The leaver, or another one that was told of it first and went as well.
        assert rank == leaver
        texts.add(text)
    assert len(texts) == 1


@ways
def test_everybody_may_exit_without_teardown(results: Path, options: list[str]) -> None:
    finished = run_job("ending.py", 4, results, "exit", "0", options=options).check()
    assert finished.reports == dict.fromkeys(range(4), 4)
    assert "Traceback" not in finished.errors


def test_a_communicator_that_is_never_closed_harms_nobody(results: Path) -> None:
    finished = run_job("ending.py", 3, results, "unclosed", "0").check()
    assert finished.reports == {0: [3, 6], 1: [3, 6], 2: [3, 6]}
    assert "Traceback" not in finished.errors


@ways
@pytest.mark.parametrize("leaver", [0, 1])
def test_an_exception_on_one_replica_is_the_others_reason(
    results: Path, leaver: int, options: list[str]
) -> None:
    finished = run_job(
        "ending.py", 3, results, "exception", f"{leaver}", options=options
    )
    assert finished.code == 1
    assert sorted(finished.reports) == sorted({0, 1, 2} - {leaver})
    for before, waiting, later in finished.reports.values():
        assert before == [0, 1, 2]
        kind, rank, reason, text = waiting
        assert (kind, rank) == ("ReplicaExitedError", leaver)
        assert "RuntimeError: the disk is full" in reason
        assert f"replica {leaver}" in text
        assert later == waiting
    assert "the disk is full" in finished.errors


@ways
def test_initialising_fifty_times_leaves_nothing_behind(
    results: Path, options: list[str]
) -> None:
    finished = run_job("again.py", 3, results, options=options).check()
    assert sorted(finished.reports) == [0, 1, 2]
    for held in finished.reports.values():
        fds, threads, memory = zip(*held, strict=True)
        assert len(held) == 50
        assert max(fds) == fds[0]
        assert max(threads) == threads[0]
        # One array kept in each round would be 60 MiB; the allocator's noise is 10.
        assert median(memory[-10:]) - median(memory[10:20]) < 16 * MEBI


@ways
@pytest.mark.parametrize("lane", ["auto", "zmq"])
def test_a_forked_child_cannot_call_and_its_parent_can(
    results: Path, options: list[str], lane: str
) -> None:
    if lane == "auto" and sys.platform != "linux":
        pytest.skip("needs memfd")
    environment = {"ZCOLL_LANE": lane}
    finished = run_job(
        "forking.py", 3, results, options=options, environment=environment
    ).check()
    assert sorted(finished.reports) == [0, 1, 2]
    for found in finished.reports.values():
        assert len(found["in the child"]) == 9
        for text in found["in the child"]:
            assert "fork" in text
        assert found["lanes of the child"] == 0
        assert found["exit of the children"] == [0, 0]
        assert found["in the parent"] == [3, 6]
        assert found["in the parent's group"] == [0, 1, 2]


@ways
def test_ctrl_c_interrupts_every_wait(results: Path, options: list[str]) -> None:
    finished = run_job("interrupted.py", 2, results, options=options).check()
    assert finished.reports[0]["after"] == finished.reports[1]["after"] == [0, 1]
    assert len(finished.reports[0]["seconds"]) == 9
    for name, seconds in finished.reports[0]["seconds"].items():
        assert seconds < 8, name  # an uninterrupted one waits longer than the test


@pytest.mark.parametrize("secret", ["", "a secret that is long enough"])
@pytest.mark.parametrize("rank", [0, 1])
def test_ctrl_c_interrupts_joining(results: Path, rank: int, secret: str) -> None:
    script = str(JOBS / "interrupted_joining.py")
    finished = run_program(
        [sys.executable, script, f"{rank}", f"{tcp_port()}"],
        results,
        {"ZCOLL_SECRET": secret} if secret else {},
    ).check()
    seconds, alone = finished.reports[rank]
    assert seconds < 8  # joining itself would go on for longer than the test
    assert alone == 7


@ways
def test_rank_0_that_has_left_serves_the_others_beyond_its_end(
    results: Path, options: list[str]
) -> None:
    """As long as there is progress; and that no teardown has been called is fine."""
    finished = run_job("leaving.py", 3, results, options=options).check()
    assert finished.reports == {0: "ended", 1: 900, 2: 900}


@ways
def test_signals_without_end_lose_nothing(results: Path, options: list[str]) -> None:
    """They come in waits, folds and steps, thousands of them."""
    finished = run_job("storm.py", 3, results, options=options).check()
    assert sorted(finished.reports) == [0, 1, 2]
    for found in finished.reports.values():
        assert found["wrong"] == 0
        assert found["interrupts"] >= 40


@pytest.mark.parametrize(
    ("way", "struck", "own", "others"),
    [
        ("abort", 0, "AbortedError", "AbortedError"),
        ("abort", 1, "AbortedError", "AbortedError"),
        ("close", 0, "ReplicaExitedError", "ReplicaExitedError"),
        ("close", 1, "ClosedError", "ReplicaExitedError"),
    ],
)
def test_a_signal_handler_may_end_the_group(
    results: Path, way: str, struck: int, own: str, others: str
) -> None:
    """It runs on the thread that waits, and has done the group's work until then."""
    finished = run_job("handlers.py", 3, results, way, f"{struck}").check()
    assert sorted(finished.reports) == [0, 1, 2]
    for rank, (kind, text) in finished.reports.items():
        assert kind == (own if rank == struck else others)
        assert "preempted" in text or kind == "ClosedError"

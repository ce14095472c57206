from __future__ import annotations

import json
from typing import Any

import pytest

from zcoll.absence import Absence, Whereabouts
from zcoll.cli.ping_report import Summary, describe_count
from zcoll.probe import Answer, Reason, Unreachable
from zcoll.protocol.status import Pending, Present, Status

NEVER = Absence(3, "", 0, Whereabouts.NEVER_JOINED, 0.0, "", "nothing yet", "")


def status(*ranks: int, total: int = 2, **changed: Any) -> Status:
    known: dict[str, Any] = {
        "package": "1.0",
        "num_replicas": total,
        "replicas": [Present(rank, f"h{rank % 2}", 10 + rank, "1.0") for rank in ranks],
        "unranked": 0,
        "complete": True,
        "closing": False,
        "decided": 4,
        "call": None,
    }
    return Status(**{**known, **changed})


def test_times_are_given_as_ping_does() -> None:
    summary = Summary(sent=200)
    for number in range(200):
        summary.answered(Answer((number + 1) / 1000, status(0, 1)))
    assert summary.milliseconds() == pytest.approx(
        {"min": 1.0, "median": 100.5, "p99": 198.0, "max": 200.0}
    )
    line = next(summary.lines())
    assert line == (
        "200 sent, 200 answered, min/median/p99/max = 1.00/100.50/198.00/200.00 ms"
    )


def test_the_last_probe_decides() -> None:
    summary = Summary(sent=1)
    summary.answered(Answer(0.001, status(0, 1)))
    assert summary.exit_code(reachable=False) == 0
    summary.unanswered(Unreachable(Reason.REFUSED, "gone"))
    assert summary.exit_code(reachable=True) == 3
    assert summary.fields()["reason"] == "refused"
    assert summary.fields()["group"] is None
    summary.answered(Answer(0.001, status(0)))
    assert summary.exit_code(reachable=False) == 1
    assert summary.exit_code(reachable=True) == 0
    assert summary.fields()["reason"] is None


def test_replicas_are_told_by_host_and_the_call_below() -> None:
    call = Pending(5, "barrier()", "a.py:3 f", [1, 3], [NEVER], "")
    summary = Summary(sent=1)
    summary.answered(Answer(0.001, status(0, 1, 2, total=4, closing=True, call=call)))
    assert list(summary.lines())[1:] == [
        "zcoll 1.0: 3 of 4 replicas, the group is ending",
        "  present: replicas 0, 2 on h0 (pids 10, 12)",
        "  present: replica 1 on h1 (pid 11)",
        "  missing: replica 3",
        "  calls:   4 done, call 5 in progress",
        "    barrier() at a.py:3 f",
        "    missing: replica 3 has never joined",
        "    missing: 1 more",
    ]
    group = json.loads(json.dumps(summary.fields()))["group"]
    assert group["call"]["absences"][0]["state"] == "never joined"


def test_ways_are_told_by_what_they_are() -> None:
    summary = Summary(sent=1)
    ways = {3: "shared memory", 1: "shared memory", 2: "ZeroMQ (another host)"}
    summary.answered(Answer(0.001, status(0, 1, 2, 3, ways=ways)))
    assert list(summary.lines())[-3:] == [
        "  way:     replicas 1, 3 by shared memory",
        "  way:     replica 2 by ZeroMQ (another host)",
        "  calls:   4 done, none in progress",
    ]


def test_those_without_a_rank_are_there() -> None:
    summary = Summary(sent=1)
    waiting = status(0, 2, total=5, complete=False, unranked=2)
    summary.answered(Answer(0.001, waiting))
    assert describe_count(waiting) == "4 of 5 replicas, replica 4 missing"
    assert list(summary.lines())[1:4] == [
        "zcoll 1.0: 4 of 5 replicas, the group is not complete",
        "  present: replicas 0, 2 on h0 (pids 10, 12)",
        "  present: 2 replicas without a rank as yet",
    ]


def test_a_call_that_waits_for_nobody_says_for_what() -> None:
    call = Pending(5, "allreduce()", "", [], [], "rank 0 is in reduce function f")
    summary = Summary(sent=1)
    summary.answered(Answer(0.001, status(0, 1, call=call)))
    assert list(summary.lines())[-2:] == [
        "    allreduce()",
        "    rank 0 is in reduce function f",
    ]


def test_the_call_of_a_group_is_told_with_its_name() -> None:
    call = Pending(5, "barrier()", "a.py:3 f", [], [], "values", group="rows")
    summary = Summary(sent=1)
    summary.answered(Answer(0.001, status(0, 1, call=call)))
    assert list(summary.lines())[-3:] == [
        "  calls:   4 done, call 5 of group 'rows' in progress",
        "    barrier() at a.py:3 f",
        "    values",
    ]

from typing import Any

import pytest
from core.coordinator_bench import (
    SESSION,
    Bench,
    everybody,
    messages,
    over,
    peer,
    told,
)

from zcoll.errors import (
    AbortedError,
    MismatchError,
    ReplicaExitedError,
    ReplicaLostError,
)
from zcoll.operations import ALLGATHER, ALLREDUCE, BARRIER, BROADCAST, DUP, TEARDOWN
from zcoll.payload import Payload
from zcoll.protocol.admission import ABSENCE
from zcoll.protocol.events import (
    LOCAL,
)
from zcoll.protocol.failures import from_fields
from zcoll.wire import Flag, Kind, pack_fields, pack_sizes, parse_fields


def test_a_mismatch_ends_the_group_for_everybody() -> None:
    bench = Bench()
    for rank in range(3):
        bench.call(rank)
    bench.call(1, BARRIER)
    instructions = bench.call(2, TEARDOWN)
    ((kind, text, after),) = over(instructions)
    assert (kind, after) == (MismatchError, 1)
    assert "teardown()" in text
    assert told(instructions) == everybody(Kind.OVER)
    assert bench.machine.membership.closing


def test_payloads_after_the_end_are_not_kept() -> None:
    bench = Bench(2)
    chunked: dict[str, Any] = {"flags": Flag.CHUNKED, "value": pack_sizes([2])}
    bench.call(1, ALLREDUCE, **chunked)
    assert over(bench.call(0, BARRIER))
    bench.call(1, ALLREDUCE, **chunked)
    assert not bench.machine.membership.members[1].link._assembling


def test_a_replica_that_exits_has_still_made_its_calls() -> None:
    bench = Bench()
    bench.call(1, site="a.py:1")
    body = pack_fields({"reason": "ValueError: no"})
    instructions = bench.hear(1, Kind.BYE, body=body)
    assert told(instructions) == {
        LOCAL: [Kind.OVER],
        peer(1): [Kind.ACK],
        peer(2): [Kind.OVER],
    }
    assert over(instructions) == [
        (
            ReplicaExitedError,
            (
                "replica 1 (host, pid 1001) exited after barrier(), call 1 (a.py:1): "
                "ValueError: no"
            ),
            1,
        )
    ]
    bench.call(0)
    ended = told(bench.call(2))
    assert ended == {LOCAL: [Kind.OUTCOME], peer(2): [Kind.OUTCOME]}


def test_calls_whose_payload_an_exiting_replica_kept_do_not_count() -> None:
    bench = Bench(2)
    bench.call(1)
    bench.call(1, BROADCAST, root=1, flags=Flag.CHUNKED, value=pack_sizes([9]))
    bench.call(1)
    assert [after for _, _, after in over(bench.hear(1, Kind.BYE, body=b"{}"))] == [1]
    assert told(bench.call(0)) == {LOCAL: [Kind.OUTCOME]}
    assert bench.call(0, BROADCAST, root=1) == []
    assert bench.machine.decisions.groups.world.pending() is None


def test_rank_0_serves_the_others_after_it_has_left() -> None:
    bench = Bench()
    bench.call(0)
    ((kind, text, after),) = over(bench.hear(0, Kind.BYE, body=pack_fields({})))
    assert (kind, after) == (ReplicaExitedError, 1)
    assert text == "replica 0 (host, pid 1000) exited after barrier(), call 1"
    assert not bench.machine.drained
    bench.call(1)
    assert told(bench.call(2)) == everybody(Kind.OUTCOME)
    for rank in (1, 2):
        bench.hear(rank, Kind.BEACON, ack=3)
    assert bench.machine.drained


def test_a_goodbye_after_a_teardown_is_no_news() -> None:
    bench = Bench()
    for rank in range(3):
        bench.call(rank, TEARDOWN)
    goodbye = bench.hear(1, Kind.BYE, body=pack_fields({}))
    assert told(goodbye) == {peer(1): [Kind.ACK]}


# --- connections -----------------------------------------------------------------


def test_a_connection_that_comes_back_brings_what_was_lost() -> None:
    bench = Bench()
    for rank in range(3):
        bench.call(rank)
    bench.machine.unreachable(peer(1), 11.0)
    bench.call(2)
    bench.call(0)
    bench.now = 12.0
    instructions = bench.hello(1, at=b"again", session=SESSION, ack=1)
    assert told(instructions) == {b"again": [Kind.WELCOME, Kind.OUTCOME]}
    (welcome,) = messages(instructions, Kind.WELCOME)
    assert welcome.ack == 1
    (outcome,) = messages(instructions, Kind.OUTCOME)
    assert (outcome.number, outcome.seq) == (2, 1)
    bench.machine.tick(99.0)
    assert over(bench.machine.take()) == []


def test_a_connection_that_stays_down_loses_its_replica() -> None:
    bench = Bench()
    for rank in range(3):
        bench.call(rank)
    bench.call(2)
    bench.machine.unreachable(peer(1), 11.0)
    bench.machine.tick(12.9)
    assert over(bench.machine.take()) == []
    bench.machine.tick(13.0)
    ((kind, text, after),) = over(bench.machine.take())
    assert (kind, after) == (ReplicaLostError, 1)
    assert text == (
        "replica 1 (host, pid 1001) is lost: its connection is gone; last heard of "
        "3.0 s ago; its last call was barrier(), call 1"
    )
    bench.machine.tick(14.0)
    assert bench.machine.take() == []


def test_probes_go_to_whoever_has_a_connection() -> None:
    bench = Bench()
    bench.machine.unreachable(peer(1), 11.0)
    bench.machine.probe()
    assert told(bench.machine.take()) == {peer(2): [Kind.ACK]}


@pytest.mark.parametrize("stopped", [0.9, 5.0])
def test_time_in_which_rank_0_was_stopped_does_not_count(stopped: float) -> None:
    bench = Bench()
    bench.machine.tick(10.0)
    bench.machine.unreachable(peer(1), 10.1)
    awake = 10.0 + stopped
    lost_at = 2.0 + (awake if stopped > ABSENCE else 10.1)
    while awake < lost_at - 0.01:
        bench.machine.tick(awake)
        assert over(bench.machine.take()) == []
        awake += 0.5
    bench.machine.tick(lost_at + 0.01)
    ((kind, _, after),) = over(bench.machine.take())
    assert (kind, after) == (ReplicaLostError, 0)


# --- aborts -----------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 1])
def test_an_abort_ends_the_group_for_everybody(rank: int) -> None:
    bench = Bench()
    for each in range(3):
        bench.call(each)
    bench.call(rank, site="a.py:1")
    instructions = bench.hear(rank, Kind.ABORT, body=pack_fields({"reason": "why"}))
    assert told(instructions) == everybody(Kind.OVER)
    assert over(instructions) == [
        (
            AbortedError,
            (
                f"replica {rank} (host, pid 100{rank}) aborted the group after "
                "barrier(), call 2 (a.py:1): why"
            ),
            1,
        )
    ]
    body = {bytes(m.body) for m in messages(instructions, Kind.OVER)}.pop()
    error = from_fields(parse_fields(body))
    assert isinstance(error, AbortedError)
    assert (error.rank, error.host, error.pid) == (rank, "host", 1000 + rank)
    assert error.reason == "why"
    assert bench.machine.membership.closing


def test_the_first_end_stands_after_an_abort() -> None:
    bench = Bench()
    bench.hear(1, Kind.ABORT, body=b"{}")
    assert over(bench.hear(2, Kind.ABORT, body=b"{}")) == []
    assert over(bench.hear(2, Kind.BYE, body=b"{}")) == []


def test_a_fold_that_ends_after_an_abort_decides_nothing() -> None:
    bench = Bench(2)
    for rank in (0, 1):
        bench.call(rank, ALLREDUCE, value=b"v")
    assert over(bench.hear(1, Kind.ABORT, body=b"{}"))
    bench.machine.folded(0, 1, [Payload([b"vv"])], None)
    assert bench.machine.take() == []
    assert bench.machine.decisions.groups.world.pending() is None


def test_a_mismatch_lets_the_calls_before_it_complete() -> None:
    bench = Bench(2)
    for rank in (0, 1):
        bench.call(rank, ALLREDUCE, value=b"v")
    bench.call(0)
    ((kind, _, after),) = over(bench.call(1, TEARDOWN))
    assert (kind, after) == (MismatchError, 1)
    bench.machine.folded(0, 1, [Payload([b"vv"])], None)
    assert told(bench.machine.take()) == everybody(Kind.OUTCOME, size=2)


def test_a_function_of_one_who_is_gone_is_not_waited_for() -> None:
    """It has come to be needed because a lower rank has left."""
    bench = Bench()
    bench.call(1, ALLREDUCE, value=b"one")
    bench.hear(1, Kind.BYE, body=pack_fields({"reason": "bad batch"}))
    bench.call(2, ALLREDUCE, value=b"two")
    ((kind, _, after),) = over(bench.hear(0, Kind.LEAVE, seq=0))
    assert (kind, after) == (ReplicaExitedError, 0)
    assert not bench.machine.decisions.groups.world.open


def test_a_function_that_was_asked_for_goes_with_its_replica() -> None:
    bench = Bench()
    bench.call(1, ALLREDUCE, value=b"one")
    instructions = bench.hear(0, Kind.LEAVE, seq=0)
    assert told(instructions)[peer(1)] == [Kind.FETCH]
    ((kind, _, after),) = over(
        bench.hear(1, Kind.BYE, body=pack_fields({"reason": "bad batch"}))
    )
    assert (kind, after) == (ReplicaExitedError, 0)


def test_rank_0_serves_on_for_a_call_that_can_still_be_decided() -> None:
    """It has left; of the others one has called and exited, one has yet to call."""
    bench = Bench()
    bench.hear(0, Kind.LEAVE, seq=0)
    bench.call(1)
    bench.hear(1, Kind.BYE, body=pack_fields({"reason": ""}))
    assert bench.machine.decisions.serving
    assert Kind.OUTCOME in told(bench.call(2))[peer(2)]
    assert not bench.machine.decisions.serving


def test_payloads_for_a_group_that_is_torn_down_are_not_kept() -> None:
    bench = Bench()
    for operation in DUP, TEARDOWN:
        for rank in range(3):
            bench.call(rank, operation)
    body = pack_sizes([9])
    call: dict[str, Any] = {"operation": ALLREDUCE.code, "group": 1, "seq": 1}
    bench.hear(1, Kind.CONTRIBUTE, flags=Flag.CHUNKED, body=body, **call)
    assert not bench.machine.membership.members[1].link._assembling


def test_one_that_has_left_and_goes_is_missed_only_for_what_it_owes() -> None:
    bench = Bench()
    bench.call(1, ALLGATHER, flags=Flag.CHUNKED, value=pack_sizes([9]))
    bench.hear(1, Kind.LEAVE, seq=1)
    ((kind, _, after),) = over(
        bench.hear(1, Kind.BYE, body=pack_fields({"reason": ""}))
    )
    assert (kind, after) == (ReplicaExitedError, 0)

    bench = Bench()
    bench.call(1)
    bench.hear(1, Kind.LEAVE, seq=1)
    assert not over(bench.hear(1, Kind.BYE, body=pack_fields({"reason": ""})))
    for _ in range(2):
        bench.call(0)
        assert Kind.OUTCOME in told(bench.call(2))[peer(2)]

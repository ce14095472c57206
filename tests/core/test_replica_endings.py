from typing import Any

import pytest
from core.replica_bench import Bench, kinds, sent

from zcoll.errors import (
    AbortedError,
    MismatchError,
    ReduceError,
    ReplicaExitedError,
    ReplicaLostError,
)
from zcoll.operations import ALLREDUCE, BARRIER, TEARDOWN
from zcoll.payload import INLINE_LIMIT
from zcoll.protocol.events import (
    Deliver,
    Fail,
    Note,
)
from zcoll.protocol.failures import to_fields
from zcoll.protocol.replica import Phase
from zcoll.wire import Kind, pack_fields, parse_fields

# --- the group's end --------------------------------------------------------------


def test_the_end_fails_every_call_after_the_last_one() -> None:
    bench = Bench()
    for _ in range(3):
        bench.call()
    error = MismatchError("different", rank=0)
    instructions = bench.end(error, after=1)
    fails = [each for each in instructions if isinstance(each, Fail)]
    assert [(fail.seq, str(fail.error)) for fail in fails] == [
        (2, "different"),
        (3, "different"),
    ]
    assert bench.replica.over
    assert bench.call() == 4
    (late,) = bench.replica.take()
    assert isinstance(late, Fail)
    assert isinstance(late.error, MismatchError)
    delivered = bench.hear(Kind.OUTCOME, seq=1, operation=BARRIER.code)
    assert Deliver(0, 1, None) in delivered


def test_each_call_has_the_first_error_that_it_is_under() -> None:
    bench = Bench()
    for _ in range(4):
        bench.call()
    bench.end(ReplicaExitedError("it left", rank=2), after=3)
    instructions = bench.end(ReplicaLostError("it died", rank=0), after=1)
    fails = [each for each in instructions if isinstance(each, Fail)]
    assert [(fail.seq, str(fail.error)) for fail in fails] == [
        (2, "it died"),
        (3, "it died"),
    ]
    bench.call()
    (late,) = bench.replica.take()
    assert isinstance(late, Fail)
    assert str(late.error) == "it left"


@pytest.mark.parametrize(
    "body",
    [
        {**to_fields(MismatchError("x")), "after": None},
        {**to_fields(MismatchError("x")), "after": True},
        {**to_fields(MismatchError("x"))},
        {**to_fields(ReduceError("x")), "after": 1},
        {"after": 1},
    ],
)
def test_an_end_that_is_none_makes_no_sense(body: dict[str, Any]) -> None:
    bench = Bench()
    bench.call()
    (note, fail) = bench.hear(Kind.OVER, body=pack_fields(body))[-2:]
    assert isinstance(note, Note)
    assert isinstance(fail, Fail)
    assert "makes no sense" in str(fail.error)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Kind.PONG, {}),
        (Kind.CONTRIBUTE, {}),
        (Kind.BYE, {}),
        (Kind.WAITING, {"body": b"{}"}),
        (Kind.WAITING, {"body": b'{"missing":["1"]}'}),
        (Kind.REPORT, {"body": b'{"ranks":3}'}),
        (Kind.BEACON, {"ack": 9}),
        (Kind.FAILURE, {"body": b"{}"}),
        (Kind.FAILURE, {"body": pack_fields(to_fields(MismatchError("x")))}),
        (Kind.OUTCOME, {"operation": 99}),
        (Kind.WELCOME, {"session": 78}),
        (Kind.REJECT, {"body": b'{"refusal":"perhaps"}'}),
        (Kind.REJECT, {"body": b'{"refusal":[]}'}),
    ],
)
def test_what_rank_0_never_sends_ends_the_group(
    kind: Kind, fields: dict[str, Any]
) -> None:
    bench = Bench()
    bench.call()
    instructions = bench.hear(kind, **{"seq": 1, **fields})
    (fail,) = [each for each in instructions if isinstance(each, Fail)]
    assert isinstance(fail.error, ReplicaLostError)
    assert fail.error.rank == 0
    assert bench.replica.phase is Phase.CLOSED


def test_messages_of_another_session_are_dropped() -> None:
    bench = Bench()
    bench.call()
    bench.replica.take()
    assert bench.hear(Kind.OUTCOME, session=78, seq=1, operation=BARRIER.code) == []


# --- leaving ----------------------------------------------------------------------


def test_it_is_gone_when_its_goodbye_has_arrived() -> None:
    bench = Bench()
    bench.replica.leave("done")
    assert not bench.replica.gone
    (bye,) = sent(bench.replica.take())
    assert (bye.kind, parse_fields(bye.body)) == (Kind.BYE, {"reason": "done"})
    assert not bench.replica.gone
    bench.hear(Kind.ACK, ack=bye.number)
    assert bench.replica.gone
    assert bench.replica.acknowledged == bye.number


def test_its_goodbye_comes_after_its_payloads() -> None:
    bench = Bench()
    bench.call(ALLREDUCE, b"x" * (INLINE_LIMIT + 1))
    bench.replica.leave("done")
    assert kinds(bench.replica.take()) == [Kind.CONTRIBUTE]
    assert kinds(bench.hear(Kind.GRANT, seq=1)) == [Kind.CHUNK, Kind.BYE]


def test_in_a_hurry_its_goodbye_does_not_wait_for_its_payloads() -> None:
    bench = Bench()
    bench.call(ALLREDUCE, b"x" * (INLINE_LIMIT + 1))
    bench.replica.leave("done")
    assert kinds(bench.replica.take()) == [Kind.CONTRIBUTE]
    bench.replica.leave("done")
    assert kinds(bench.replica.take()) == [Kind.BYE]


def test_a_function_that_was_asked_for_goes_before_the_bye() -> None:
    bench = Bench()
    seq = bench.call(ALLREDUCE, b"x")
    bench.replica.take()
    bench.hear(Kind.FETCH, seq=seq)
    bench.replica.leave("done")
    assert kinds(bench.replica.take()) == []
    bench.replica.calling.equip(0, seq, b"function")
    assert kinds(bench.replica.take()) == [Kind.FUNCTION, Kind.BYE]


def test_a_bye_does_not_wait_for_the_function_of_a_call_that_is_over() -> None:
    bench = Bench()
    seq = bench.call(ALLREDUCE, b"x")
    bench.hear(Kind.FETCH, seq=seq)
    bench.replica.leave("done")
    code = ALLREDUCE.code
    assert Kind.BYE in kinds(bench.hear(Kind.OUTCOME, operation=code, seq=seq))
    bench = Bench()
    bench.hear(Kind.FETCH, seq=bench.call(ALLREDUCE, b"x"))
    bench.replica.leave("done")
    bench.replica.leave("at once")
    assert kinds(bench.replica.take()) == [Kind.BYE]
    assert kinds(bench.hear(Kind.GRANT, seq=1)) == []
    bench.replica.leave("done")
    assert kinds(bench.replica.take()) == []


def test_a_teardown_does_not_wait_for_a_rank_0_that_has_left() -> None:
    bench = Bench()
    bench.call(TEARDOWN)
    bench.hear(Kind.OUTCOME, seq=1, operation=TEARDOWN.code)
    bench.replica.leave("")
    bench.replica.take()
    assert not bench.replica.gone
    bench.replica.disconnected(11.0)
    assert bench.replica.gone


def test_after_the_groups_end_it_does_not_wait_for_rank_0_either() -> None:
    bench = Bench()
    bench.end(MismatchError("different"), after=0)
    bench.replica.disconnected(11.0)
    bench.replica.leave("")
    bench.replica.take()
    assert bench.replica.gone


def test_without_an_end_it_waits_for_the_reconnect() -> None:
    bench = Bench()
    bench.call()
    bench.replica.take()
    bench.replica.disconnected(11.0)
    bench.replica.leave("")
    bench.replica.take()
    assert not bench.replica.gone
    bench.tick(13.0)
    assert bench.replica.gone


# --- aborts -----------------------------------------------------------------------


def test_an_abort_goes_before_what_is_left_of_payloads() -> None:
    bench = Bench()
    bench.call(ALLREDUCE, b"x" * (INLINE_LIMIT + 1))
    bench.replica.abort("why")
    call, abort = sent(bench.replica.take())
    assert (call.kind, abort.kind) == (Kind.CONTRIBUTE, Kind.ABORT)
    assert parse_fields(abort.body) == {"reason": "why"}
    fail, _ = bench.end(AbortedError("aborted", rank=1, reason="why"), after=0)
    assert isinstance(fail, Fail)
    assert isinstance(fail.error, AbortedError)
    assert (fail.error.rank, fail.error.reason) == (1, "why")
    assert not bench.replica._link.owes_payloads


@pytest.mark.parametrize("joined", [False, True])
def test_who_is_not_in_the_group_cannot_abort_it(joined: bool) -> None:
    bench = Bench(joined=joined)
    if joined:
        bench.replica.leave("")
        bench.replica.take()
    bench.replica.abort("why")
    assert kinds(bench.replica.take()) == []


def test_a_lost_rank_0_is_named_with_its_host() -> None:
    bench = Bench()
    bench.call()
    bench.replica.disconnected(11.0)
    (fail,) = [each for each in bench.tick(13.0) if isinstance(each, Fail)]
    assert isinstance(fail.error, ReplicaLostError)
    assert (fail.error.rank, fail.error.host, fail.error.pid) == (0, "node", 7)

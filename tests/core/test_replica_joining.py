from typing import Any

import pytest
from core.replica_bench import IDENTITY, SESSION, TABLE, Bench, kinds, sent

from zcoll.errors import (
    RejectedError,
    ReplicaExitedError,
    ReplicaLostError,
)
from zcoll.protocol.admission import RETRY
from zcoll.protocol.events import (
    Fail,
    Joined,
    Note,
    Refused,
    ReplicaInstruction,
)
from zcoll.protocol.identities import read_identity
from zcoll.protocol.membership import Refusal
from zcoll.protocol.replica import Phase
from zcoll.wire import (
    Flag,
    Kind,
    pack_fields,
    pack_sizes,
    parse_fields,
)


def _joined(said: list[ReplicaInstruction]) -> bool:
    return any(isinstance(each, Joined) for each in said)


def test_it_says_who_it_is_until_it_is_welcome() -> None:
    bench = Bench(joined=False)
    bench.replica.connected(10.0)
    (hello,) = sent(bench.replica.take())
    fields = parse_fields(hello.body)
    assert (hello.kind, hello.ack) == (Kind.HELLO, 0)
    assert read_identity(fields) == IDENTITY
    assert (fields["job"], fields["session"]) == ("job", 0)
    assert bench.tick(10.9) == []
    assert kinds(bench.tick(11.0)) == [Kind.HELLO]
    bench.hear(Kind.WELCOME)
    assert kinds(bench.tick(20.0)) == [Kind.BEACON]


def test_it_joins_when_the_group_is_complete() -> None:
    bench = Bench(joined=False)
    assert bench.replica.waiting_for == [0]
    bench.replica.connected(10.0)
    bench.hear(Kind.WELCOME)
    bench.hear(Kind.WAITING, body=pack_fields({"missing": [2, 3]}))
    assert bench.replica.waiting_for == [2, 3]
    assert not _joined(bench.replica.take())
    assert _joined(bench.hear(Kind.READY, body=TABLE))
    assert bench.replica.waiting_for == []
    assert bench.replica.phase is Phase.JOINED


def test_while_it_joins_rank_0_may_come_back_as_another_one() -> None:
    bench = Bench(joined=False)
    bench.replica.connected(10.0)
    bench.hear(Kind.WELCOME)
    bench.replica.disconnected(11.0)
    assert kinds(bench.tick(99.0)) == [Kind.HELLO]
    bench.replica.connected(99.0)
    hello = sent(bench.replica.take())[-1]
    assert parse_fields(hello.body)["session"] == 0
    bench.hear(Kind.WELCOME, session=5)
    assert _joined(bench.hear(Kind.READY, body=TABLE, session=5))


def test_a_refusal_is_final() -> None:
    bench = Bench(joined=False)
    (refused,) = bench.refuse(Refusal.FINAL.value, "no such rank")
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, RejectedError)
    assert refused.error.reason == "no such rank"
    assert bench.replica.phase is Phase.CLOSED
    assert bench.replica.gone
    assert bench.tick(99.0) == []


def test_nonsense_while_it_joins_is_a_refusal_and_is_said_once() -> None:
    bench = Bench(joined=False)
    (refused,) = bench.hear(Kind.PONG, session=0)
    assert isinstance(refused, Refused)
    assert "makes no sense" in str(refused.error)
    assert bench.hear(Kind.PONG, session=0) == []


def test_it_asks_again_while_an_earlier_group_ends() -> None:
    bench = Bench(joined=False)
    for start in (10.0, 20.0, 30.0):
        bench.now = start
        assert bench.refuse(Refusal.CLOSING.value) == []
        assert bench.tick(start + RETRY - 0.01) == []
        assert kinds(bench.tick(start + RETRY)) == [Kind.HELLO]


def test_it_asks_for_a_taken_rank_for_a_while() -> None:
    bench = Bench(joined=False)
    assert bench.refuse(Refusal.TAKEN.value) == []
    assert kinds(bench.tick(12.9)) == [Kind.HELLO]
    assert bench.refuse(Refusal.TAKEN.value) == []
    bench.tick(13.0)
    (refused,) = bench.refuse(Refusal.TAKEN.value, "rank 1 is taken")
    assert isinstance(refused, Refused)


def test_who_is_not_known_says_hello_at_once() -> None:
    assert kinds(Bench().refuse(Refusal.UNKNOWN.value)) == [Kind.HELLO]


def test_leaving_before_the_group_is_complete_is_quiet() -> None:
    bench = Bench(joined=False)
    bench.replica.leave("")
    assert bench.replica.gone
    assert bench.replica.take() == []


# --- the connection ---------------------------------------------------------------


def test_it_shows_once_a_second_that_it_is_there() -> None:
    bench = Bench()
    assert kinds(bench.tick(20.0)) == [Kind.BEACON]
    assert bench.tick(20.9) == []
    (beacon,) = sent(bench.tick(21.0))
    assert (beacon.ack, beacon.session, beacon.rank) == (1, SESSION, 1)
    bench.hear(Kind.BEACON)
    assert bench.replica.heard == 21.0


def test_after_a_reconnect_it_sends_again_what_was_lost() -> None:
    bench = Bench()
    for _ in range(2):
        bench.call()
    assert kinds(bench.replica.take()) == [Kind.CONTRIBUTE] * 2
    bench.replica.disconnected(11.0)
    bench.call()
    assert bench.replica.take() == []
    bench.replica.connected(12.0)
    (hello,) = sent(bench.replica.take())
    assert hello.ack == 1
    assert parse_fields(hello.body)["session"] == SESSION
    again = bench.hear(Kind.WELCOME, ack=1)
    assert [message.seq for message in sent(again)] == [2, 3]
    bench.replica.tick(99.0)
    assert bench.replica.phase is Phase.JOINED


@pytest.mark.parametrize("answers", [False, True], ids=["down", "no welcome"])
def test_rank_0_is_lost_when_the_connection_stays_down(answers: bool) -> None:
    bench = Bench()
    bench.call()
    bench.replica.take()
    bench.replica.disconnected(11.0)
    if answers:
        bench.replica.connected(11.5)
        bench.replica.disconnected(11.6)
        bench.replica.take()
    assert kinds(bench.tick(12.9)) == [Kind.HELLO]  # lost, or the way back
    note, fail = bench.tick(13.0)
    assert isinstance(note, Note)
    assert isinstance(fail, Fail)
    assert isinstance(fail.error, ReplicaLostError)
    assert fail.error.rank == 0
    assert bench.replica.gone


def test_calls_that_were_under_no_end_say_that_rank_0_is_lost() -> None:
    bench = Bench()
    for _ in range(2):
        bench.call()
    bench.end(ReplicaExitedError("it left", rank=2), after=1)
    bench.replica.disconnected(11.0)
    fails = [each for each in bench.tick(13.0) if isinstance(each, Fail)]
    (fail,) = fails
    assert fail.seq == 1
    assert str(fail.error) == (
        "replica 0 (node, pid 7) is lost: its connection is gone; last heard of "
        "3.0 s ago; the last call that it decided was none"
    )


@pytest.mark.parametrize(
    ("refusal", "rank"),
    [(Refusal.LOST, 1), (Refusal.FINAL, 0)],
)
def test_who_is_refused_after_a_reconnect_is_lost(refusal: Refusal, rank: int) -> None:
    bench = Bench()
    bench.call()
    bench.replica.take()
    (note, fail) = bench.refuse(refusal.value, "you were gone")
    assert isinstance(note, Note)
    assert isinstance(fail, Fail)
    assert isinstance(fail.error, ReplicaLostError)
    assert fail.error.rank == rank
    assert "you were gone" in str(fail.error)


@pytest.mark.parametrize("cut", [10.5, 19.9], ids=["before", "found afterwards"])
def test_time_in_which_it_was_held_up_does_not_count(cut: float) -> None:
    bench = Bench()
    bench.tick(10.0)
    bench.replica.disconnected(cut)
    left = 1.5 if cut < 11 else 2.0
    bench.tick(11.0 if cut < 11 else 10.9)
    for step in range(20):
        bench.tick(20.0 + left * step / 20)
        assert bench.replica.phase is Phase.JOINED
    bench.tick(20.0 + left)
    assert bench.replica.phase is Phase.CLOSED


def test_who_has_given_rank_0_up_does_not_come_back() -> None:
    bench = Bench()
    bench.call()
    bench.replica.disconnected(11.0)
    bench.tick(13.0)
    assert bench.replica.phase is Phase.CLOSED
    bench.replica.connected(14.0)
    assert bench.replica.take() == []
    chunked: dict[str, Any] = {"flags": Flag.CHUNKED, "body": pack_sizes([9])}
    for kind, fields in ((Kind.WELCOME, {}), (Kind.OUTCOME, chunked)):
        assert bench.hear(kind, **fields) == []
    assert not bench.replica._link._assembling

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zcoll.errors import (
    CollectiveError,
    EncodeError,
    GroupError,
    MismatchError,
    ReduceError,
    RejectedError,
    ReplicaExitedError,
    ReplicaLostError,
    from_fields,
    to_fields,
)
from zcoll.operations import ALLREDUCE, BARRIER, BROADCAST, TEARDOWN, Operation
from zcoll.protocol.events import (
    Deliver,
    Fail,
    Identity,
    Joined,
    Missing,
    Note,
    Refused,
    ReplicaInstruction,
    Send,
    Timing,
)
from zcoll.protocol.link import Link
from zcoll.protocol.membership import Refusal, read_identity
from zcoll.protocol.replica import RETRY, Phase, Replica
from zcoll.wire import (
    INLINE_LIMIT,
    Flag,
    Kind,
    Message,
    Payload,
    pack_fields,
    pack_place,
    pack_sizes,
    parse_fields,
)

SESSION = 77
IDENTITY = Identity(1, 2, "host", 1001, 5001, "1.0", "3.11")


class Bench:
    """A replica's machine, and a rank 0 that says what a test wants it to say."""

    def __init__(self, *, joined: bool = True) -> None:
        self.replica = Replica(IDENTITY, "job", Timing(), Link(grants=True))
        self.now = 10.0
        self.number = 0
        if joined:
            self.replica.connected(self.now)
            self.hear(Kind.WELCOME)
            self.hear(Kind.READY, body=pack_fields({"replicas": []}))
            self.replica.take()

    def hear(
        self, kind: Kind, *, session: int = SESSION, **fields: Any
    ) -> list[ReplicaInstruction]:
        """What the machine does when rank 0 says this."""
        message = Message(kind, session=session, **fields)
        if kind.numbered:
            self.number += 1
            message.number = self.number
        self.replica.receive(message, self.now)
        return self.replica.take()

    def refuse(self, refusal: object, reason: str = "why") -> list[ReplicaInstruction]:
        body = pack_fields({"refusal": refusal, "reason": reason})
        return self.hear(Kind.REJECT, session=0, body=body)

    def end(self, error: GroupError, after: int) -> list[ReplicaInstruction]:
        body = pack_fields({**to_fields(error), "after": after})
        return self.hear(Kind.OVER, body=body)

    def call(self, operation: Operation = BARRIER, value: bytes = b"") -> int:
        payload = Payload([value], stable=True) if value else None
        return self.replica.call(operation, 0, f"a.py:{self.replica._seq}", payload)

    def tick(self, now: float) -> list[ReplicaInstruction]:
        self.now = now
        self.replica.tick(now)
        return self.replica.take()


def sent(instructions: list[ReplicaInstruction]) -> list[Message]:
    return [each.message for each in instructions if isinstance(each, Send)]


def kinds(instructions: list[ReplicaInstruction]) -> list[Kind]:
    return [message.kind for message in sent(instructions)]


# --- joining ----------------------------------------------------------------------


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
    assert Joined() not in bench.replica.take()
    assert Joined() in bench.hear(Kind.READY)
    assert bench.replica.waiting_for == []
    assert bench.replica.phase is Phase.JOINED


def test_while_it_joins_rank_0_may_come_back_as_another_one() -> None:
    bench = Bench(joined=False)
    bench.replica.connected(10.0)
    bench.hear(Kind.WELCOME)
    bench.replica.disconnected(11.0)
    assert bench.tick(99.0) == []
    bench.replica.connected(99.0)
    hello = sent(bench.replica.take())[-1]
    assert parse_fields(hello.body)["session"] == 0
    bench.hear(Kind.WELCOME, session=5)
    assert Joined() in bench.hear(Kind.READY, session=5)


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


# --- calls ------------------------------------------------------------------------


def test_calls_are_numbered_and_carry_their_site() -> None:
    bench = Bench()
    assert [bench.call(), bench.call(ALLREDUCE, b"v")] == [1, 2]
    first, second = sent(bench.replica.take())
    assert (first.seq, first.operation, first.number) == (1, BARRIER.code, 1)
    assert (second.seq, second.body, second.site) == (2, b"v", "a.py:1")
    assert (second.rank, second.session, second.ack) == (1, SESSION, 1)


@pytest.mark.parametrize(
    ("body", "value"), [(b"", None), (b"abc", Payload([b"abc"], stable=True))]
)
def test_an_outcome_is_delivered_once(body: bytes, value: Payload | None) -> None:
    bench = Bench()
    bench.call()
    bench.replica.take()
    outcome: dict[str, Any] = {"seq": 1, "body": body, "operation": BARRIER.code}
    assert bench.hear(Kind.OUTCOME, **outcome) == [Deliver(0, 1, value)]
    assert bench.hear(Kind.OUTCOME, **outcome) == []


def test_a_large_outcome_is_delivered_with_its_last_chunk() -> None:
    bench = Bench()
    bench.call(BROADCAST)
    bench.replica.take()
    head = {"operation": BROADCAST.code, "flags": Flag.CHUNKED, "seq": 1}
    assert bench.hear(Kind.OUTCOME, body=pack_sizes([2, 1]), **head) == []
    first = bench.hear(Kind.CHUNK, seq=1, body=pack_place(0, 0), data=b"ab")
    assert first == []
    (deliver,) = bench.hear(Kind.CHUNK, seq=1, body=pack_place(1, 0), data=b"c")
    assert isinstance(deliver, Deliver)
    assert deliver.payload is not None
    assert deliver.payload.parts == [bytearray(b"ab"), bytearray(b"c")]


def test_a_large_value_waits_for_its_grant() -> None:
    bench = Bench()
    bench.call(ALLREDUCE, b"x" * (INLINE_LIMIT + 1))
    assert kinds(bench.replica.take()) == [Kind.CONTRIBUTE]
    assert kinds(bench.hear(Kind.GRANT, seq=1)) == [Kind.CHUNK]


def test_a_decided_call_needs_no_more_of_the_value() -> None:
    bench = Bench()
    bench.call(ALLREDUCE, b"x" * (INLINE_LIMIT + 1))
    bench.replica.take()
    bench.hear(Kind.FAILURE, seq=1, body=pack_fields(to_fields(ReduceError("no"))))
    assert kinds(bench.hear(Kind.GRANT, seq=1)) == []


def test_a_large_value_that_nobody_needs_does_not_stay() -> None:
    bench = Bench()
    bench.call(BROADCAST, b"x" * (INLINE_LIMIT + 1))
    bench.hear(Kind.OUTCOME, seq=1, operation=BROADCAST.code, body=b"root's")
    bench.replica.leave("")
    assert kinds(bench.replica.take()) == [Kind.BYE]


def test_a_value_that_cannot_be_encoded_travels_as_its_error() -> None:
    bench = Bench()
    bench.replica.call(ALLREDUCE, 0, "a.py:1", None, EncodeError("no", rank=1))
    (message,) = sent(bench.replica.take())
    error = from_fields(parse_fields(message.body))
    assert message.flags == Flag.POISONED
    assert isinstance(error, EncodeError)
    assert (error.seq, error.rank) == (1, 1)


def test_a_failure_names_this_replicas_own_line() -> None:
    bench = Bench()
    bench.call(ALLREDUCE, b"v")
    bench.replica.take()
    remote = ReduceError("no", op="x", seq=9, site="b.py:3", rank=0)
    (fail,) = bench.hear(Kind.FAILURE, seq=1, body=pack_fields(to_fields(remote)))
    assert isinstance(fail, Fail)
    assert isinstance(fail.error, CollectiveError)
    assert str(fail.error) == "allreduce 1 (a.py:0) failed on replica 0: no"


def test_a_failure_of_a_call_that_has_ended_is_no_news() -> None:
    bench = Bench()
    body = pack_fields(to_fields(ReduceError("no")))
    assert bench.hear(Kind.FAILURE, seq=1, body=body) == []


def test_it_asks_who_is_missing() -> None:
    bench = Bench()
    seq = bench.call()
    bench.replica.take()
    bench.replica.ask(seq)
    (query,) = sent(bench.replica.take())
    assert (query.kind, query.seq, query.number) == (Kind.QUERY, 1, 0)
    body = pack_fields({"ranks": [0], "text": "replica 0 sleeps"})
    assert bench.hear(Kind.REPORT, seq=1, body=body) == [
        Missing(0, 1, [0], "replica 0 sleeps")
    ]


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
    assert bench.tick(12.9) == []
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
    assert [(fail.seq, str(fail.error)) for fail in fails] == [
        (1, "rank 0 is lost: its connection is gone")
    ]


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


BODIES = [
    b"",
    b"{}",
    b"junk",
    pack_sizes([3]),
    pack_place(0, 0),
    pack_fields({"missing": [1]}),
    pack_fields({"ranks": [1], "text": ""}),
    pack_fields(to_fields(ReduceError("no"))),
    pack_fields({**to_fields(MismatchError("no")), "after": 1}),
    *(pack_fields({"refusal": refusal.value, "reason": ""}) for refusal in Refusal),
]
ANYTHING = st.builds(
    Message,
    kind=st.sampled_from(Kind),
    operation=st.integers(0, 5),
    flags=st.integers(0, 3),
    session=st.sampled_from([SESSION, SESSION, SESSION, 0, 5]),
    seq=st.integers(0, 4),
    number=st.integers(0, 5),
    ack=st.integers(0, 3),
    body=st.sampled_from(BODIES),
    data=st.sampled_from([b"", b"abc"]),
)


@given(st.lists(ANYTHING), st.booleans())
def test_whatever_rank_0_sends_calls_end_at_most_once(
    arrivals: list[Message], joined: bool
) -> None:
    bench = Bench(joined=joined)
    operations = (BARRIER, BROADCAST, BARRIER) if joined else ()
    made = [bench.call(operation) for operation in operations]
    ended = []
    for message in arrivals:
        bench.replica.receive(message, bench.now)
        ended += bench.replica.take()
    bench.replica.disconnected(bench.now)
    ended += bench.tick(bench.now + 99)
    seqs = [each.seq for each in ended if isinstance(each, Deliver | Fail)]
    assert len(seqs) == len(set(seqs))
    if bench.replica.phase is Phase.CLOSED:
        assert sorted(seqs) == made

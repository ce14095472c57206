from typing import Any

import pytest
from core.replica_bench import SESSION, TABLE, Bench, kinds, sent
from hypothesis import given
from hypothesis import strategies as st

from zcoll.absence import Absence, Whereabouts, write_absence
from zcoll.errors import CollectiveError, EncodeError, MismatchError, ReduceError
from zcoll.operations import ALLREDUCE, BARRIER, BROADCAST
from zcoll.payload import INLINE_LIMIT, Payload
from zcoll.protocol.events import (
    Contribution,
    Deliver,
    Fail,
    Missing,
    TellStack,
)
from zcoll.protocol.failures import from_fields, to_fields
from zcoll.protocol.membership import Refusal
from zcoll.protocol.replica import Phase
from zcoll.wire import (
    Flag,
    Kind,
    Message,
    pack_fields,
    pack_place,
    pack_sizes,
    parse_fields,
)

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
    error = EncodeError("no", rank=1)
    made = Contribution(0, ALLREDUCE, 0, "", "a.py:1", None, error)
    bench.replica.calling.call(made)
    (message,) = sent(bench.replica.take())
    told = from_fields(parse_fields(message.body))
    assert message.flags == Flag.POISONED
    assert isinstance(told, EncodeError)
    assert (told.seq, told.rank) == (1, 1)


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
    bench.replica.ask(0, seq)
    (query,) = sent(bench.replica.take())
    assert (query.kind, query.seq, query.number) == (Kind.QUERY, 1, 0)
    absence = Absence(0, "node", 7, Whereabouts.THERE, 0.5, "", "nothing yet", "")
    fields = {"ranks": [0], "absences": [write_absence(absence)], "text": "why"}
    assert bench.hear(Kind.REPORT, seq=1, body=pack_fields(fields)) == [
        Missing(0, 1, [0], [absence], "why")
    ]


def test_it_tells_where_its_program_is() -> None:
    bench = Bench()
    (said,) = bench.hear(Kind.STACK)
    assert isinstance(said, TellStack)
    bench.replica.tell("a.py:9 load", "the stack", 4.5)
    bench.call(ALLREDUCE, b"v")
    bench.replica.tell("a.py:9 load", "the stack", 0.0)
    idle, waiting, _ = sent(bench.replica.take())
    assert (idle.kind, idle.number, idle.session) == (Kind.STACK, 0, SESSION)
    assert parse_fields(idle.body) == {
        "waiting": "",
        "where": "a.py:9 load",
        "stack": "the stack",
        "seconds": 4.5,
    }
    assert parse_fields(waiting.body)["waiting"] == "allreduce, call 1 (a.py:0)"


BODIES = [
    b"",
    b"{}",
    b"junk",
    pack_sizes([3]),
    pack_place(0, 0),
    pack_fields({"missing": [1]}),
    pack_fields({"ranks": [1], "absences": [], "text": ""}),
    pack_fields({"ranks": [1], "absences": [{"state": "gone"}], "text": ""}),
    TABLE,
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

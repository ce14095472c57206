from typing import Any

import pytest
from core.coordinator_bench import (
    SESSION,
    Bench,
    everybody,
    identity,
    messages,
    over,
    peer,
    told,
)

from zcoll.errors import EncodeError, ProtocolError, ReduceError, ReplicaLostError
from zcoll.operations import ALLREDUCE, BROADCAST
from zcoll.payload import INLINE_LIMIT, Payload
from zcoll.protocol.coordinator import Coordinator
from zcoll.protocol.events import (
    LOCAL,
    Fold,
    Note,
    Send,
    Timing,
)
from zcoll.protocol.failures import from_fields, to_fields
from zcoll.protocol.link import WINDOW
from zcoll.protocol.membership import Refusal
from zcoll.wire import (
    CHUNK_SIZE,
    Flag,
    Kind,
    Message,
    OtherVersionError,
    pack_fields,
    pack_place,
    pack_sizes,
    parse_fields,
)

# --- gathering --------------------------------------------------------------------


def test_alone_it_is_ready_at_once() -> None:
    machine = Coordinator(identity(0, 1), SESSION, "job", Timing())
    machine.announce()
    assert told(machine.take()) == {LOCAL: [Kind.WELCOME, Kind.READY]}
    assert machine.drained


def test_the_last_to_come_completes_the_group() -> None:
    bench = Bench(joined=False)
    assert told(bench.hello(2)) == {LOCAL: [Kind.WELCOME], peer(2): [Kind.WELCOME]}
    instructions = bench.hello(1)
    ready = {LOCAL: [Kind.READY], peer(2): [Kind.READY]}
    assert told(instructions) == {**ready, peer(1): [Kind.WELCOME, Kind.READY]}
    (table,) = {bytes(m.body) for m in messages(instructions, Kind.READY)}
    assert [row["rank"] for row in parse_fields(table)["replicas"]] == [0, 1, 2]
    sessions = {m.session for m in messages(instructions, Kind.READY)}
    assert sessions == {SESSION}


@pytest.mark.parametrize("kind", [Kind.WELCOME, Kind.PONG, Kind.READY])
def test_before_the_group_is_complete_nonsense_frees_the_rank(kind: Kind) -> None:
    bench = Bench(joined=False)
    bench.hello(1)
    (note,) = bench.hear(1, kind)
    assert isinstance(note, Note)
    assert bench.machine.membership.absent == [1, 2]
    assert Kind.WELCOME in told(bench.hello(1))[peer(1)]


def test_who_is_refused_is_no_member() -> None:
    bench = Bench()
    assert told(bench.hello(2, at=b"other", session=78)) == {b"other": [Kind.REJECT]}
    assert bench.machine.membership.by_peer(b"other") is None


def test_a_hello_that_claims_too_much_frees_the_rank() -> None:
    bench = Bench(joined=False)
    bench.hello(1, ack=5)
    assert bench.machine.membership.absent == [1, 2]


# --- strangers --------------------------------------------------------------------


def test_another_version_is_told_so() -> None:
    bench = Bench()
    bench.machine.misbehaved(b"stranger", OtherVersionError(2))
    reject, note = bench.machine.take()
    assert isinstance(reject, Send)
    fields = parse_fields(reject.message.body)
    assert Refusal(fields["refusal"]) is Refusal.FINAL
    assert fields["reason"] == "protocol version 2, here it is 1"
    assert isinstance(note, Note)


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.PING])
def test_a_stranger_changes_nothing(kind: Kind) -> None:
    bench = Bench()
    body = b"nonsense"
    bench.machine.receive(b"stranger", Message(kind, number=9, body=body), 1.0)
    bench.machine.misbehaved(b"stranger", ProtocolError("noise"))
    assert set(told(bench.machine.take())) <= {b"stranger"}
    assert bench.machine.membership.absent == []
    assert over(bench.call(1)) == []


def test_a_beacon_of_a_stranger_is_asked_to_say_hello() -> None:
    bench = Bench()
    bench.machine.receive(b"stranger", Message(Kind.BEACON), 1.0)
    (reject,) = messages(bench.machine.take(), Kind.REJECT)
    assert parse_fields(reject.body)["refusal"] == Refusal.UNKNOWN.value


def test_a_member_that_sends_nonsense_is_lost() -> None:
    bench = Bench()
    bench.call(1, site="a.py:1")
    instructions = bench.hear(1, Kind.OUTCOME)
    ((kind, text, after),) = over(instructions)
    assert (kind, after) == (ReplicaLostError, 0)
    assert text == (
        "replica 1 (host, pid 1001) is lost: sent a message that makes no sense: a "
        "replica does not send OUTCOME; its last call was barrier(), call 1 (a.py:1)"
    )
    assert set(told(instructions)) == {LOCAL, peer(2)}


def test_messages_of_another_session_are_dropped() -> None:
    bench = Bench()
    assert bench.call(1, session=78) == []
    assert bench.machine.decisions.groups.world.roll.missing(1) == [0, 1, 2]


# --- calls ------------------------------------------------------------------------


def test_a_barrier_ends_on_every_replica() -> None:
    bench = Bench()
    assert told(bench.call(1)) == told(bench.call(2)) == {}
    assert told(bench.call(0)) == everybody(Kind.OUTCOME)


def test_a_broadcast_is_forwarded() -> None:
    bench = Bench()
    for rank in (0, 1):
        bench.call(rank, BROADCAST, root=2)
    outcomes = messages(bench.call(2, BROADCAST, value=b"v", root=2), Kind.OUTCOME)
    assert [bytes(m.body) for m in outcomes[1:]] == [b"v", b"v"]
    local = outcomes[0].payload
    assert local is not None
    assert [bytes(part) for part in local.parts] == [b"v"]
    assert memoryview(local.parts[0]).readonly


def test_an_allreduce_is_folded_in_rank_order() -> None:
    bench = Bench()
    for rank in (2, 1):
        bench.call(rank, ALLREDUCE, value=b"%d" % rank)
    (fold,) = bench.call(0, ALLREDUCE, value=b"0")
    assert isinstance(fold, Fold)
    assert [(r, bytes(p.parts[0])) for r, p in fold.operands] == [
        (0, b"0"),
        (1, b"1"),
        (2, b"2"),
    ]
    assert fold.last
    bench.machine.folded(0, 1, [Payload([b"012"])], None)
    assert told(bench.machine.take()) == everybody(Kind.OUTCOME)


def test_a_failure_reads_the_same_everywhere() -> None:
    bench = Bench()
    for rank in range(3):
        bench.call(rank, ALLREDUCE, value=b"v")
    bench.machine.folded(
        0, 1, None, ReduceError("no", rank=0, remote_traceback="lines")
    )
    failures = messages(bench.machine.take(), Kind.FAILURE)
    assert len(failures) == 3
    (body,) = {bytes(message.body) for message in failures}
    error = from_fields(parse_fields(body))
    assert isinstance(error, ReduceError)
    assert error.remote_traceback == "lines"


def test_a_replicas_error_is_everybodys() -> None:
    bench = Bench()
    for rank in (0, 1):
        bench.call(rank, ALLREDUCE, value=b"v")
    poison = pack_fields(to_fields(EncodeError("no", rank=2)))
    instructions = bench.call(2, ALLREDUCE, value=poison, flags=Flag.POISONED)
    assert told(instructions) == everybody(Kind.FAILURE)


def test_large_payloads_are_granted_and_taken_in() -> None:
    bench = Bench(2)
    bench.call(0, ALLREDUCE, value=b"0")
    head: dict[str, Any] = {"flags": Flag.CHUNKED, "value": pack_sizes([2])}
    granted = bench.call(1, ALLREDUCE, **head)
    assert told(granted) == {peer(1): [Kind.GRANT]}
    assert any(isinstance(each, Fold) for each in granted)
    bench.machine.folded(0, 1, None, None)
    for offset in (0, 1):
        place = pack_place(0, offset)
        instructions = bench.hear(1, Kind.CHUNK, seq=1, body=place, data=b"x")
    assert any(isinstance(each, Fold) and each.last for each in instructions)


def test_the_chunks_of_a_call_that_has_failed_are_not_kept() -> None:
    bench = Bench(2)
    bench.call(1, ALLREDUCE, flags=Flag.CHUNKED, value=pack_sizes([2]))
    poison = pack_fields(to_fields(EncodeError("no", rank=0)))
    bench.call(0, ALLREDUCE, value=poison, flags=Flag.POISONED)
    assert not bench.machine.membership.members[1].link._assembling


def test_an_acknowledgement_lets_more_chunks_go() -> None:
    bench = Bench(2)
    for rank in (0, 1):
        bench.call(rank, ALLREDUCE, value=b"v")
    bench.machine.folded(0, 1, [Payload([bytes(WINDOW + CHUNK_SIZE)])], None)
    sent = told(bench.machine.take())[peer(1)]
    assert sent.count(Kind.CHUNK) == WINDOW // CHUNK_SIZE
    assert told(bench.hear(1, Kind.ACK, ack=3)) == {peer(1): [Kind.CHUNK]}


def test_a_large_result_goes_in_chunks() -> None:
    bench = Bench(2)
    for rank in (0, 1):
        bench.call(rank, ALLREDUCE, value=b"v")
    bench.machine.folded(0, 1, [Payload([b"x" * (INLINE_LIMIT + 1)])], None)
    kinds = told(bench.machine.take())
    assert kinds == {LOCAL: [Kind.OUTCOME], peer(1): [Kind.OUTCOME, Kind.CHUNK]}
    assert not bench.machine.drained
    bench.hear(1, Kind.BEACON, ack=3)
    assert bench.machine.drained

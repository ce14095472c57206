from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zcoll.errors import (
    EncodeError,
    MismatchError,
    ProtocolError,
    ReduceError,
    ReplicaExitedError,
    ReplicaLostError,
    from_fields,
    to_fields,
)
from zcoll.operations import ALLREDUCE, BARRIER, BROADCAST, TEARDOWN, Operation
from zcoll.protocol.coordinator import Coordinator
from zcoll.protocol.events import (
    LOCAL,
    CoordinatorInstruction,
    Fold,
    Identity,
    Note,
    Send,
    Timing,
)
from zcoll.protocol.link import WINDOW
from zcoll.protocol.membership import Refusal, write_identity
from zcoll.wire import (
    CHUNK_SIZE,
    INLINE_LIMIT,
    Flag,
    Kind,
    Message,
    OtherVersionError,
    Payload,
    pack_fields,
    pack_place,
    pack_sizes,
    parse_fields,
)

SESSION = 77


def identity(rank: int, size: int) -> Identity:
    return Identity(rank, size, "host", 1000 + rank, 5000 + rank, "1.0", "3.11")


def peer(rank: int) -> bytes:
    return b"peer %d" % rank if rank else LOCAL


class Bench:
    """Rank 0's machine, and replicas that say what a test wants them to say."""

    def __init__(self, size: int = 3, *, joined: bool = True) -> None:
        self.machine = Coordinator(identity(0, size), SESSION, "job", Timing())
        self.machine.announce()
        self.size = size
        self.now = 10.0
        self.numbers = dict.fromkeys(range(size), 0)
        self.seqs = dict.fromkeys(range(size), 0)
        if joined:
            for rank in range(1, size):
                self.hello(rank)

    def hello(
        self, rank: int, *, at: bytes | None = None, session: int = 0, ack: int = 0
    ) -> list[CoordinatorInstruction]:
        fields = {**write_identity(identity(rank, self.size)), "job": "job"}
        body = pack_fields({**fields, "session": session})
        hello = Message(Kind.HELLO, body=body, ack=ack)
        self.machine.receive(at or peer(rank), hello, self.now)
        return self.machine.take()

    def hear(
        self, rank: int, kind: Kind, **fields: Any
    ) -> list[CoordinatorInstruction]:
        """What the machine does when this replica says this."""
        message = Message(kind, **{"session": SESSION, **fields})
        if kind.numbered and rank:
            self.numbers[rank] += 1
            message.number = self.numbers[rank]
        self.machine.receive(peer(rank), message, self.now)
        return self.machine.take()

    def call(
        self,
        rank: int,
        operation: Operation = BARRIER,
        *,
        value: bytes = b"",
        **more: Any,
    ) -> list[CoordinatorInstruction]:
        self.seqs[rank] += 1
        seq = more.pop("seq", self.seqs[rank])
        if rank == 0 and value:
            more["payload"] = Payload([value])
        code = operation.code
        return self.hear(
            rank, Kind.CONTRIBUTE, operation=code, seq=seq, body=value, **more
        )


def told(instructions: list[CoordinatorInstruction]) -> dict[bytes, list[Kind]]:
    """The kinds of the messages to each peer."""
    kinds: dict[bytes, list[Kind]] = {}
    for each in instructions:
        if isinstance(each, Send):
            kinds.setdefault(each.peer, []).append(each.message.kind)
    return kinds


def messages(instructions: list[CoordinatorInstruction], kind: Kind) -> list[Message]:
    sends = [each for each in instructions if isinstance(each, Send)]
    return [send.message for send in sends if send.message.kind is kind]


def everybody(*kinds: Kind, size: int = 3) -> dict[bytes, list[Kind]]:
    return {peer(rank): list(kinds) for rank in range(size)}


def over(instructions: list[CoordinatorInstruction]) -> list[tuple[type, str, int]]:
    """What OVER says, without repetitions: the error and the last call."""
    ends = [parse_fields(m.body) for m in messages(instructions, Kind.OVER)]
    return list(
        dict.fromkeys(
            (type(from_fields(e)), str(from_fields(e)), e["after"]) for e in ends
        )
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
        "replica does not send OUTCOME; its last call was call 1 (a.py:1)"
    )
    assert set(told(instructions)) == {LOCAL, peer(2)}


def test_messages_of_another_session_are_dropped() -> None:
    bench = Bench()
    assert bench.call(1, session=78) == []
    assert bench.machine.calls.missing(1) == [0, 1, 2]


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
    bench.machine.folded(1, Payload([b"012"]), None)
    assert told(bench.machine.take()) == everybody(Kind.OUTCOME)


def test_a_failure_reads_the_same_everywhere() -> None:
    bench = Bench()
    for rank in range(3):
        bench.call(rank, ALLREDUCE, value=b"v")
    bench.machine.folded(1, None, ReduceError("no", rank=0, remote_traceback="lines"))
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
    bench.machine.folded(1, None, None)
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
    bench.machine.folded(1, Payload([bytes(WINDOW + CHUNK_SIZE)]), None)
    sent = told(bench.machine.take())[peer(1)]
    assert sent.count(Kind.CHUNK) == WINDOW // CHUNK_SIZE
    assert told(bench.hear(1, Kind.ACK, ack=3)) == {peer(1): [Kind.CHUNK]}


def test_a_large_result_goes_in_chunks() -> None:
    bench = Bench(2)
    for rank in (0, 1):
        bench.call(rank, ALLREDUCE, value=b"v")
    bench.machine.folded(1, Payload([b"x" * (INLINE_LIMIT + 1)]), None)
    kinds = told(bench.machine.take())
    assert kinds == {LOCAL: [Kind.OUTCOME], peer(1): [Kind.OUTCOME, Kind.CHUNK]}
    assert not bench.machine.drained
    bench.hear(1, Kind.BEACON, ack=3)
    assert bench.machine.drained


# --- endings ----------------------------------------------------------------------


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
            "replica 1 (host, pid 1001) exited after call 1 (a.py:1): ValueError: no",
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
    assert bench.machine.calls.pending() is None


def test_rank_0_serves_the_others_after_it_has_left() -> None:
    bench = Bench()
    bench.call(0)
    ((kind, text, after),) = over(bench.hear(0, Kind.BYE, body=pack_fields({})))
    assert (kind, after) == (ReplicaExitedError, 1)
    assert text == "replica 0 (host, pid 1000) exited after call 1"
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
        "3.0 s ago; its last call was call 1"
    )
    bench.machine.tick(14.0)
    assert bench.machine.take() == []


def test_probes_go_to_whoever_has_a_connection() -> None:
    bench = Bench()
    bench.machine.unreachable(peer(1), 11.0)
    bench.machine.probe()
    assert told(bench.machine.take()) == {peer(2): [Kind.ACK]}


# --- questions --------------------------------------------------------------------


def test_a_report_says_who_is_missing_and_what_they_did() -> None:
    bench = Bench()
    for rank in (0, 2):
        bench.call(rank, site="a.py:3")
    bench.now = 12.5
    (report,) = messages(bench.hear(2, Kind.QUERY, seq=1), Kind.REPORT)
    assert (report.seq, report.session) == (1, SESSION)
    assert parse_fields(report.body) == {
        "ranks": [1],
        "text": "replica 1 (host, pid 1001) last called nothing yet, "
        "heard of 2.5 s ago",
    }
    (own,) = messages(bench.hear(0, Kind.QUERY, seq=2), Kind.REPORT)
    fields = parse_fields(own.body)
    assert fields["ranks"] == [0, 1, 2]
    assert fields["text"].startswith(
        "replica 0 (host, pid 1000) last called call 1 (a.py:3), this is rank 0; "
    )


def test_a_long_report_is_cut() -> None:
    bench = Bench(40)
    (report,) = messages(bench.hear(1, Kind.QUERY, seq=1), Kind.REPORT)
    fields = parse_fields(report.body)
    assert fields["ranks"] == list(range(40))
    assert fields["text"].endswith("; and 24 more")


def test_a_beacon_is_answered_and_is_a_sign_of_life() -> None:
    bench = Bench()
    bench.now = 33.0
    (answer,) = messages(bench.hear(1, Kind.BEACON), Kind.BEACON)
    assert answer.session == SESSION
    assert bench.machine.membership.members[1].heard == 33.0


def test_a_ping_is_answered_to_whoever_asks() -> None:
    bench = Bench(joined=False)
    bench.hello(1)
    bench.call(0, site="a.py:3")
    ping = Message(Kind.PING, seq=5, body=b" " * 2000)
    bench.machine.receive(b"stranger", ping, 12.0)
    (pong,) = messages(bench.machine.take(), Kind.PONG)
    assert (pong.seq, len(pong.body)) == (5, 2000)
    fields = parse_fields(pong.body)
    call = fields.pop("call")
    assert [row["rank"] for row in fields.pop("replicas")] == [0, 1]
    assert fields == {
        "package": "1.0",
        "num_replicas": 3,
        "complete": False,
        "closing": False,
        "decided": 0,
    }
    assert call["site"] == "a.py:3"
    assert (call["seq"], call["operation"]) == (1, "barrier()")
    assert call["missing"] == [1, 2]


def test_a_ping_between_calls_shows_none() -> None:
    bench = Bench()
    bench.machine.receive(b"stranger", Message(Kind.PING), 12.0)
    (pong,) = messages(bench.machine.take(), Kind.PONG)
    fields = parse_fields(pong.body)
    assert (fields["complete"], fields["call"]) == (True, None)


def test_progress_is_counted() -> None:
    bench = Bench()
    before = bench.machine.progress
    bench.hear(1, Kind.BEACON)
    assert bench.machine.progress == before
    bench.call(1)
    assert bench.machine.progress > before


BODIES = [
    b"",
    b"{}",
    b"junk",
    pack_sizes([3]),
    pack_sizes([0, 2**63]),
    pack_place(0, 0),
    pack_fields({"reason": 3}),
    pack_fields(to_fields(EncodeError("no"))),
    pack_fields(to_fields(MismatchError("no"))),
    pack_fields({**write_identity(identity(1, 3)), "job": "job", "session": 0}),
    pack_fields({**write_identity(identity(2, 3)), "job": "job", "session": SESSION}),
]
ANYTHING = st.builds(
    Message,
    kind=st.sampled_from(Kind),
    operation=st.integers(0, 5),
    flags=st.integers(0, 3),
    root=st.integers(0, 3),
    session=st.sampled_from([SESSION, SESSION, SESSION, 0, 5]),
    seq=st.integers(0, 3),
    number=st.integers(0, 4),
    ack=st.integers(0, 3),
    body=st.sampled_from(BODIES),
    data=st.sampled_from([b"", b"abc"]),
)


@given(st.lists(st.tuples(st.integers(1, 3), ANYTHING)), st.booleans())
def test_nothing_that_peers_send_breaks_rank_0(
    arrivals: list[tuple[int, Message]], joined: bool
) -> None:
    bench = Bench(joined=joined)
    bench.call(0)
    for rank, message in arrivals:
        bench.machine.receive(peer(rank), message, bench.now)
        bench.machine.take()
        bench.now += 0.5
        bench.machine.tick(bench.now)
    bench.call(0)

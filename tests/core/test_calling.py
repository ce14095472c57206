"""A replica's calls in its groups, at its own machine."""

from typing import Any

import pytest
from core.replica_bench import IDENTITY, Bench, kinds, sent

from zcoll.errors import (
    ClosedError,
    CollectiveError,
    EncodeError,
    MismatchError,
    ReplicaExitedError,
    ReplicaLostError,
)
from zcoll.operations import ALLREDUCE, BARRIER, BROADCAST, SPLIT, TEARDOWN, Operation
from zcoll.payload import INLINE_LIMIT, Payload
from zcoll.protocol.calling import read_group
from zcoll.protocol.events import (
    WORLD,
    Contribution,
    Deliver,
    Fail,
    ReplicaInstruction,
    TellFunction,
)
from zcoll.protocol.failures import from_fields, to_fields
from zcoll.protocol.plans import pack_color
from zcoll.wire import Flag, Kind, pack_fields, pack_sizes, parse_fields

GROUP = 4
NAME = "split of the world, call 1, color 1"
MADE = pack_fields({"group": GROUP, "name": NAME, "ranks": [1, 0]})


class Grouped(Bench):
    """A bench whose replica is in a group, too."""

    def __init__(self) -> None:
        super().__init__()
        self.make(SPLIT, pack_color(1, 0))
        self.hear(Kind.OUTCOME, operation=SPLIT.code, seq=1, body=MADE)

    def make(
        self, operation: Operation = BARRIER, value: bytes = b"", group: int = WORLD
    ) -> int:
        payload = Payload([value], stable=True) if value else None
        return self.replica.calling.call(
            Contribution(group, operation, 0, "", "a.py:1", payload)
        )

    def decide(self, seq: int, group: int = GROUP, **more: Any) -> list[object]:
        code = more.pop("operation", BARRIER).code
        return _ends(
            self.hear(Kind.OUTCOME, operation=code, group=group, seq=seq, **more)
        )


def _ends(instructions: list[ReplicaInstruction]) -> list[object]:
    """How calls have ended: group and number, and the value or the error's kind."""
    ends: list[object] = []
    for each in instructions:
        if isinstance(each, Deliver):
            value = None if each.payload is None else bytes(each.payload.parts[0])
            ends.append((each.group, each.seq, value))
        elif isinstance(each, Fail):
            ends.append((each.group, each.seq, type(each.error), each.error.group))
    return ends


def test_each_group_has_its_own_numbering() -> None:
    bench = Grouped()
    assert [bench.make(), bench.make(group=GROUP), bench.make(group=GROUP)] == [2, 1, 2]
    made = [(m.group, m.seq) for m in sent(bench.replica.take())]
    assert made == [(WORLD, 2), (GROUP, 1), (GROUP, 2)]
    assert bench.decide(1) == [(GROUP, 1, None)]
    assert bench.decide(2, WORLD) == [(WORLD, 2, None)]


def test_a_group_whose_news_come_in_chunks() -> None:
    bench = Bench()
    bench.call(SPLIT, pack_color(1, 0))
    bench.hear(
        Kind.OUTCOME,
        operation=SPLIT.code,
        flags=Flag.CHUNKED,
        seq=1,
        body=pack_sizes([len(MADE)]),
    )
    assert GROUP not in bench.replica.calling
    done = bench.hear(Kind.CHUNK, seq=1, body=b"\0" * 12, data=MADE)
    assert _ends(done) == [(WORLD, 1, MADE)]
    assert GROUP in bench.replica.calling


def test_a_call_that_fails_names_its_group() -> None:
    bench = Grouped()
    bench.make(ALLREDUCE, b"x", GROUP)
    bench.replica.take()
    error = CollectiveError("no", rank=0, group=NAME)
    body = pack_fields(to_fields(error))
    (fail,) = bench.hear(Kind.FAILURE, group=GROUP, seq=1, body=body)
    assert isinstance(fail, Fail)
    assert str(fail.error) == (
        f"allreduce 1 of group {NAME!r} (a.py:1) failed on replica 0: no"
    )


def test_a_value_that_cannot_travel_names_its_group() -> None:
    bench = Grouped()
    made = Contribution(GROUP, ALLREDUCE, 0, "", "", None, error=EncodeError("no"))
    bench.replica.calling.call(made)
    (message,) = sent(bench.replica.take())
    error = from_fields(parse_fields(message.body))
    assert isinstance(error, EncodeError)
    assert (error.group, error.seq) == (NAME, 1)


# --- functions --------------------------------------------------------------------


def test_a_function_follows_its_call() -> None:
    bench = Grouped()
    payload = Payload([b"x"], stable=True)
    made = Contribution(GROUP, ALLREDUCE, 0, "", "", payload, function=b"f")
    bench.replica.calling.call(made)
    assert kinds(bench.replica.take()) == [Kind.CONTRIBUTE, Kind.FUNCTION]


def test_a_function_that_is_asked_for() -> None:
    bench = Grouped()
    bench.make(ALLREDUCE, b"x", GROUP)
    bench.replica.take()
    (ask,) = bench.hear(Kind.FETCH, group=GROUP, seq=1)
    assert ask == TellFunction(GROUP, 1)
    calling = bench.replica.calling
    calling.equip(GROUP, 1, b"f")
    calling.equip(GROUP, 1, EncodeError("no", rank=1))
    one, other = sent(bench.replica.take())
    assert (one.kind, one.group, one.seq, one.body) == (Kind.FUNCTION, GROUP, 1, b"f")
    assert other.flags == Flag.POISONED
    assert from_fields(parse_fields(other.body)).message == "no"


# --- leaving, closing -------------------------------------------------------------


def test_leaving_is_said_once_after_what_was_called() -> None:
    bench = Grouped()
    bench.make(group=GROUP)
    for _ in range(2):
        bench.replica.calling.leave(GROUP)
    assert kinds(bench.replica.take()) == [Kind.CONTRIBUTE, Kind.LEAVE]
    assert bench.decide(1) == [(GROUP, 1, None)]


@pytest.mark.parametrize("end", ["leave", "close"])
def test_a_call_that_comes_after_that_is_too_late(end: str) -> None:
    bench = Grouped()
    bench.make(group=GROUP)
    getattr(bench.replica.calling, end)(GROUP)
    with pytest.raises(ClosedError, match=r"has (left|closed) the group meanwhile"):
        bench.make(group=GROUP)
    made = kinds(bench.replica.take())
    assert made == [Kind.CONTRIBUTE, Kind[end.upper()]]
    bench.decide(1)
    with pytest.raises(ClosedError, match=r"has (left|closed) the group meanwhile"):
        bench.make(group=GROUP)
    bench.replica.calling.leave(GROUP)
    assert kinds(bench.replica.take()) == []


def test_closing_says_why() -> None:
    bench = Grouped()
    bench.replica.calling.close(GROUP, "ValueError: no")
    (message,) = sent(bench.replica.take())
    assert (message.kind, message.group) == (Kind.CLOSE, GROUP)
    assert parse_fields(message.body) == {"reason": "ValueError: no"}
    assert GROUP not in bench.replica.calling


def test_a_closed_group_is_kept_until_its_calls_have_ended() -> None:
    bench = Grouped()
    bench.make(ALLREDUCE, bytes(INLINE_LIMIT + 1), GROUP)
    bench.replica.calling.close(GROUP)
    assert GROUP in bench.replica.calling
    bench.replica.take()
    assert kinds(bench.hear(Kind.GRANT, group=GROUP, seq=1)) == [Kind.CHUNK]
    (ask,) = bench.hear(Kind.FETCH, group=GROUP, seq=1)
    assert ask == TellFunction(GROUP, 1)
    assert bench.decide(1, operation=ALLREDUCE, body=b"y") == [(GROUP, 1, b"y")]
    assert GROUP not in bench.replica.calling
    assert bench.replica.calling.over(GROUP)
    assert bench.replica.calling.active(GROUP) == []


def test_a_closed_groups_calls_end_when_it_ends() -> None:
    bench = Grouped()
    bench.make(group=GROUP)
    bench.replica.calling.close(GROUP)
    body = pack_fields({**to_fields(ReplicaExitedError("x", rank=0)), "after": 0})
    ended = bench.hear(Kind.OVER, group=GROUP, body=body)
    assert _ends(ended) == [(GROUP, 1, ReplicaExitedError, NAME)]
    assert GROUP not in bench.replica.calling


def test_news_of_a_group_that_is_closed_are_ignored() -> None:
    bench = Grouped()
    bench.replica.calling.close(GROUP)
    bench.replica.take()
    body = pack_fields({**to_fields(MismatchError("x")), "after": 0})
    for kind in (Kind.OVER, Kind.ACTIVE, Kind.FETCH, Kind.GRANT, Kind.FAILURE):
        said = bench.hear(kind, group=GROUP, seq=1, body=body)
        assert set(kinds(said)) <= {Kind.ACK}
        assert _ends(said) == []
    assert bench.make() == 2


# --- ends -------------------------------------------------------------------------


def test_a_groups_end_is_not_that_of_the_world() -> None:
    bench = Grouped()
    bench.make(group=GROUP)
    bench.make()
    body = pack_fields({**to_fields(MismatchError("x", group=NAME)), "after": 0})
    ended = bench.hear(Kind.OVER, group=GROUP, body=body)
    assert _ends(ended) == [(GROUP, 1, MismatchError, NAME)]
    assert not bench.replica.over
    bench.make(group=GROUP)
    assert _ends(bench.replica.take()) == [(GROUP, 2, MismatchError, NAME)]
    assert bench.decide(2, WORLD) == [(WORLD, 2, None)]


def test_the_worlds_end_is_not_that_of_a_group() -> None:
    bench = Grouped()
    bench.make(group=GROUP)
    bench.end(ReplicaExitedError("x", rank=5), 1)
    assert bench.replica.over
    assert not bench.replica.calling.over(GROUP)
    assert bench.decide(1) == [(GROUP, 1, None)]


def test_a_torn_down_group_takes_no_more_calls() -> None:
    bench = Grouped()
    bench.make(TEARDOWN, group=GROUP)
    bench.make(group=GROUP)
    ended = bench.decide(1, operation=TEARDOWN)
    assert ended == [(GROUP, 2, ClosedError, NAME), (GROUP, 1, None)]
    assert not bench.replica.calling.torn_down, "that is the world"


def test_the_loss_of_rank_0_ends_every_group() -> None:
    bench = Grouped()
    bench.make(group=GROUP)
    bench.make()
    bench.replica.disconnected(bench.now)
    assert _ends(bench.tick(bench.now + 60)) == [
        (WORLD, 2, ReplicaLostError, ""),
        (GROUP, 1, ReplicaLostError, NAME),
    ]


def test_who_is_active_is_as_of_the_last_outcome() -> None:
    bench = Grouped()
    calling = bench.replica.calling
    assert (calling.active(GROUP), calling.active(WORLD)) == ([0, 1], [0, 1])
    bench.make(group=GROUP)
    bench.hear(Kind.ACTIVE, group=GROUP, body=pack_fields({"active": [0]}))
    bench.decide(1)
    assert (calling.active(GROUP), calling.active(WORLD)) == ([0], [0, 1])


def test_what_a_replica_waits_for_names_the_group() -> None:
    bench = Grouped()
    bench.make(group=GROUP)
    bench.replica.tell("b.py:9 f", "stack", 2.0)
    (told,) = [m for m in sent(bench.replica.take()) if m.kind is Kind.STACK]
    fields = parse_fields(told.body)
    assert fields["waiting"] == f"barrier, call 1 of group {NAME!r} (a.py:1)"


# --- nonsense ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"group": "4", "name": "n", "ranks": [1]},
        {"group": 4, "name": None, "ranks": [1]},
        {"group": 4, "name": "n", "ranks": [True]},
        {"group": 4, "name": "n"},
    ],
)
def test_news_of_a_group_that_make_no_sense(fields: dict[str, Any]) -> None:
    bench = Bench()
    bench.call(SPLIT, pack_color(1, 0))
    body = pack_fields(fields)
    said = bench.hear(Kind.OUTCOME, operation=SPLIT.code, seq=1, body=body)
    (fail,) = (each for each in said if isinstance(each, Fail))
    assert isinstance(fail.error, ReplicaLostError)
    assert "a message that makes no sense: a group" in str(fail.error)


@pytest.mark.parametrize("active", [None, 1, ["0"], [True]])
def test_active_ranks_that_make_no_sense(active: object) -> None:
    bench = Grouped()
    bench.hear(Kind.ACTIVE, group=GROUP, body=pack_fields({"active": active}))
    assert bench.replica.over


def test_no_group_is_a_group_of_nobody() -> None:
    assert read_group({"group": None}) == (None, "", [])


def test_the_value_of_a_broadcast_is_only_sent_when_it_is_granted() -> None:
    bench = Grouped()
    bench.make(BROADCAST, bytes(INLINE_LIMIT + 1), GROUP)
    assert kinds(bench.replica.take()) == [Kind.CONTRIBUTE]
    assert kinds(bench.hear(Kind.GRANT, group=WORLD, seq=1)) == []
    assert kinds(bench.hear(Kind.GRANT, group=GROUP, seq=1)) == [Kind.CHUNK]
    assert IDENTITY.rank == 1

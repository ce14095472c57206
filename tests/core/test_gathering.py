"""The short way of a call at rank 0 leaves what the long way leaves, or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from core.coordinator_bench import SESSION, Bench, identity, peer

from zcoll.operations import (
    ALLREDUCE,
    ALLTOALL,
    BARRIER,
    BROADCAST,
    DUP,
    GATHER,
    TEARDOWN,
    Operation,
)
from zcoll.payload import INLINE_LIMIT, Payload
from zcoll.protocol.events import LOCAL, WORLD, Contribution, Deliver, Send, Timing
from zcoll.protocol.gathering import Gathering
from zcoll.protocol.link import LocalLink
from zcoll.protocol.members import State
from zcoll.protocol.replica import Replica
from zcoll.wire import Flag, Kind, Message, pack, parse

SIZE = 3
NOW = 11.0


class Hub(Bench):
    """Rank 0: its coordinator, its own replica, and what the others say."""

    def __init__(self) -> None:
        super().__init__(SIZE, joined=False)
        self.replica = Replica(identity(0, SIZE), "job", Timing(), LocalLink())
        self.results: list[Payload | None] = []
        for rank in range(1, SIZE):
            self.hello(rank)
        self.machine.announce()
        self.pump()

    def hello(self, rank: int, **more: Any) -> list[Any]:
        out = super().hello(rank, **more)
        for each in out:
            self.obey(each)
        return out

    def obey(self, instruction: object) -> None:
        if isinstance(instruction, Send) and instruction.peer == LOCAL:
            self.replica.receive(instruction.message, NOW)

    def pump(self) -> dict[bytes, list[Message]]:
        """Let the two machines talk; what goes to the others."""
        told: dict[bytes, list[Message]] = {}
        while (out := self.machine.take()) or (answers := self.replica.take()):
            for each in out:
                self.obey(each)
                if isinstance(each, Send) and each.peer != LOCAL:
                    told.setdefault(each.peer, []).append(each.message)
            for answer in self.replica.take() if out else answers:
                if isinstance(answer, Send):
                    self.machine.receive(LOCAL, answer.message, NOW)
                elif isinstance(answer, Deliver):
                    self.results.append(answer.payload)
        return told

    def begin(self, made: Contribution) -> Gathering:
        gathering = Gathering.begin(self.machine, self.replica, made)
        assert gathering is not None
        return gathering

    def part(self, rank: int, **changed: Any) -> list[Any]:
        """The frames of a replica's part of the next call."""
        fields = {
            "operation": ALLREDUCE.code,
            "session": SESSION,
            "rank": rank,
            "seq": 1,
            "number": 1,
            "site": f"job.py:{rank} main",
            "body": b"%d" % rank,
        }
        return list(pack(Message(Kind.CONTRIBUTE, **{**fields, **changed})))


def made(
    operation: Operation = ALLREDUCE, value: bytes | None = b"0", **more: Any
) -> Contribution:
    fields = {"root": 0, "tag": "", **more}
    payload = None if value is None else Payload([value], stable=True)
    return Contribution(
        WORLD, operation, **fields, site="job.py:0 main", payload=payload
    )


def state(hub: Hub) -> Any:
    """What is left of calls, for people and for the next ones."""
    calls = hub.machine.decisions.groups.world
    members = hub.machine.membership.members
    return (
        calls.decided,
        calls.quiet,
        [calls.last_call(rank) for rank in range(SIZE)],
        [hub.machine.decisions.groups.last_call(rank) for rank in range(SIZE)],
        [member.link.received for member in members[1:]],
        [member.link.acknowledged for member in members[1:]],
        hub.replica.calling.last_decided,
        str(hub.replica.calling),
        hub.replica.is_quiet(WORLD),
    )


CASES: dict[str, tuple[Contribution, dict[str, Any], list[bytes]]] = {
    "allreduce": (made(), {}, [b"r", b"r", b"r"]),
    "a tag": (made(tag="loss"), {"tag": "loss"}, [b"r", b"r", b"r"]),
    "barrier": (
        made(BARRIER, None),
        {"operation": BARRIER.code, "body": b""},
        [b"", b"", b""],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_leaves_what_the_long_way_leaves(name: str) -> None:
    own, fields, outcomes = CASES[name]
    folds = own.operation.folding is not None
    results = [Payload([b"r"], stable=True)] if folds else None

    short = Hub()
    gathering = short.begin(own)
    assert not gathering.complete
    assert gathering.take(peer(2), short.part(2, **fields))
    assert gathering.take(peer(1), short.part(1, **fields))
    assert gathering.complete
    if folds:
        values = [payload.parts for payload in gathering.payloads.values()]
        assert values == [[b"0"], [b"1"], [b"2"]]
    frames, outcome = gathering.conclude(results, NOW)
    told = {to: parse([frame]) for to, frame in frames}

    long = Hub()
    for rank in (2, 1):
        long.machine.receive(peer(rank), parse(long.part(rank, **fields)), NOW)
    long.replica.calling.call(own)
    messages = long.pump()
    if folds:
        long.machine.folded(WORLD, 1, results, None)
        messages = long.pump()

    assert state(short) == state(long)
    assert told == {to: message for to, (message,) in messages.items()}
    assert [told[peer(rank)].body for rank in (1, 2)] == outcomes[1:]
    assert b"".join(map(bytes, outcome.parts)) == outcomes[0]
    assert all(m.heard == NOW for m in short.machine.membership.members[1:])


def test_the_values_are_forwarded_to_whom_they_are_for() -> None:
    hub = Hub()
    gathering = hub.begin(made(BROADCAST, None, root=2))
    fields = {"operation": BROADCAST.code, "root": 2}
    assert gathering.take(peer(1), hub.part(1, body=b"", **fields))
    assert gathering.take(peer(2), hub.part(2, body=b"v", **fields))
    frames, outcome = gathering.conclude(None, NOW)
    assert outcome.parts == [b"v"]
    assert [parse([frame]).body for _, frame in frames] == [b"v", b"v"]

    hub = Hub()
    gathering = hub.begin(made(GATHER))
    for rank in (1, 2):
        assert gathering.take(peer(rank), hub.part(rank, operation=GATHER.code))
    frames, outcome = gathering.conclude(None, NOW)
    assert len(outcome.parts[0]) > 3
    assert [parse([frame]).body for _, frame in frames] == [b"", b""]


def test_a_large_outcome_goes_in_chunks() -> None:
    hub = Hub()
    gathering = hub.begin(made())
    for rank in (1, 2):
        assert gathering.take(peer(rank), hub.part(rank))
    large = Payload([b"x" * (INLINE_LIMIT + 1)], stable=True)
    frames, outcome = gathering.conclude([large], NOW)
    assert frames == []
    assert outcome.nbytes == INLINE_LIMIT + 1
    kinds = {to: [m.kind for m in told] for to, told in hub.pump().items()}
    both = [Kind.OUTCOME, Kind.CHUNK]
    assert kinds == {peer(1): both, peer(2): both}


def test_an_outcome_is_sent_again_after_a_reconnect() -> None:
    hub = Hub()
    gathering = hub.begin(made())
    for rank in (1, 2):
        assert gathering.take(peer(rank), hub.part(rank))
    frames, _ = gathering.conclude([Payload([b"r"], stable=True)], NOW)
    hub.machine.unreachable(peer(1), NOW)
    told = hub.hello(1, at=b"another", session=SESSION, ack=1)  # it has READY only
    welcome, again = (each.message for each in told if isinstance(each, Send))
    assert welcome.kind is Kind.WELCOME
    assert again == parse([dict(frames)[peer(1)]])


OTHERS: dict[str, dict[str, Any]] = {
    "another kind": {"kind": Kind.CHUNK, "data": b"x"},
    "chunks": {"flags": Flag.CHUNKED},
    "an error": {"flags": Flag.POISONED},
    "another operation": {"operation": GATHER.code},
    "another root": {"root": 1},
    "another tag": {"tag": "x"},
    "the next call": {"seq": 2},
    "another group": {"group": 3},
    "another session": {"session": SESSION + 1},
    "seen before": {"number": 2},
    "what was never sent is acknowledged": {"ack": 1000},
    "no payload": {"body": b""},
}


@pytest.mark.parametrize("name", OTHERS)
def test_whatever_else_comes_ends_it_and_changes_nothing(name: str) -> None:
    hub = Hub()
    before = state(hub)
    gathering = hub.begin(made())
    assert gathering.take(peer(2), hub.part(2))
    fields = dict(OTHERS[name])
    if "kind" in fields:
        message = Message(session=SESSION, seq=1, number=1, **fields)
        assert not gathering.take(peer(1), list(pack(message)))
    else:
        assert not gathering.take(peer(1), hub.part(1, **fields))
    assert state(hub) == before
    assert gathering.held == [(peer(2), hub.part(2))]


def test_who_may_not_take_part_ends_it() -> None:
    hub = Hub()
    gathering = hub.begin(made())
    assert not gathering.take(b"a stranger", hub.part(1))
    assert not gathering.take(peer(1), [])
    assert not gathering.take(peer(1), [b"junk"])
    assert not gathering.take(peer(1), [b"junk" * 50])
    assert gathering.take(peer(1), hub.part(1))
    assert not gathering.take(peer(1), hub.part(1)), "twice"
    member = hub.machine.membership.members[2]
    member.contested = NOW
    assert not gathering.take(peer(2), hub.part(2))
    member.contested = None
    member.state = State.LOST
    assert not gathering.take(peer(2), hub.part(2))


@pytest.mark.parametrize(
    "own",
    [
        made(TEARDOWN, None),
        made(DUP, None),
        made(ALLTOALL),
        made(value=b"x" * (INLINE_LIMIT + 1)),
    ],
    ids=["an end", "new groups", "lists", "large"],
)
def test_what_goes_the_long_way_from_the_start(own: Contribution) -> None:
    hub = Hub()
    assert Gathering.begin(hub.machine, hub.replica, own) is None


def test_nothing_else_may_be_under_way() -> None:
    hub = Hub()
    hub.machine.receive(peer(1), parse(hub.part(1)), NOW)
    assert Gathering.begin(hub.machine, hub.replica, made()) is None, "an open call"

    hub = Hub()
    hub.replica.calling.call(made())
    assert Gathering.begin(hub.machine, hub.replica, made()) is None, "its own call"

    hub = Hub()
    leave = Message(Kind.LEAVE, session=SESSION, number=1)
    hub.machine.receive(peer(1), leave, NOW)
    hub.pump()
    assert Gathering.begin(hub.machine, hub.replica, made()) is None, "one has left"

    hub = Hub()
    hub.replica.abort("why")
    assert Gathering.begin(hub.machine, hub.replica, made()) is None, "not silent"
    hub.pump()
    assert Gathering.begin(hub.machine, hub.replica, made()) is None, "it is over"


def test_the_function_of_another_replica_comes_behind_its_part() -> None:
    hub = Hub()
    hub.machine.decisions.groups.world.roll.ranks = [1, 0, 2]
    assert Gathering.begin(hub.machine, hub.replica, made()) is None
    barrier = made(BARRIER, None)
    assert Gathering.begin(hub.machine, hub.replica, barrier) is not None

"""Replicas that rank 0 gives their ranks."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from core.coordinator_bench import Bench as Zero
from core.replica_bench import IDENTITY, SESSION, sent
from core.replica_bench import Bench as One
from core.test_membership import answers, hello, identity, join, membership, refusal

from zcoll.protocol.events import Identity, Joined, Send, Timing
from zcoll.protocol.identities import read_identity
from zcoll.protocol.link import Link
from zcoll.protocol.members import State
from zcoll.protocol.membership import Membership, Refusal
from zcoll.protocol.replica import Replica
from zcoll.wire import AUTO_RANK, Kind, pack_fields, parse_fields

A, B, C, D = b"peer a", b"peer b", b"peer c", b"peer d"


def auto(host: str, pid: int, incarnation: int, size: int = 3, **more: Any) -> Identity:
    return identity(
        AUTO_RANK, size, host=host, pid=pid, incarnation=incarnation, **more
    )


def ranks(group: Membership, *peers: bytes) -> list[int | None]:
    members = [group.by_peer(peer) for peer in peers]
    return [None if member is None else member.rank for member in members]


def test_nobody_has_a_rank_before_all_are_there() -> None:
    group = membership()
    assert list(group.hello(A, hello(auto("a", 1, 1)), 1.0)) == []
    assert ranks(group, A) == [None]
    assert not group.complete
    assert group.absent == [2]


ORDERED = [
    auto("a", 9, 5, 5),
    auto("b", 1, 7, 5),
    auto("b", 2, 2, 5),
    auto("b", 2, 3, 5),
]


@pytest.mark.parametrize("arrival", list(permutations(range(4))))
def test_ranks_follow_host_process_and_incarnation_not_arrival(
    arrival: tuple[int, ...],
) -> None:
    group = membership(5)
    peers = [A, B, C, D]
    told: list[Send] = []
    for index in arrival:
        asked = hello(ORDERED[index])
        told += [
            s for s in group.hello(peers[index], asked, 1.0) if isinstance(s, Send)
        ]
    assert ranks(group, A, B, C, D) == [1, 2, 3, 4]
    assert group.complete
    assert {send.peer: send.message.rank for send in told} == {A: 1, B: 2, C: 3, D: 4}
    assert {send.message.kind for send in told} == {Kind.WELCOME}
    assert [row["rank"] for row in group.table()] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("fixed_at", range(3))
def test_fixed_and_given_ranks_mix(fixed_at: int) -> None:
    group = membership(4)
    arrivals = [(A, auto("a", 1, 1, 4)), (B, auto("b", 1, 2, 4))]
    arrivals.insert(fixed_at, (C, identity(2, 4)))
    for peer, who in arrivals:
        assert not group.complete
        list(group.hello(peer, hello(who), 1.0))
    assert ranks(group, A, C, B) == [1, 2, 3]
    assert group.complete


def test_one_that_goes_before_the_group_is_complete_frees_its_place() -> None:
    group = membership()
    list(group.hello(A, hello(auto("a", 1, 1)), 1.0))
    group.unreachable(A, 2.0)
    assert group.absent == [1, 2]
    list(group.hello(B, hello(auto("b", 1, 2)), 3.0))
    assert not group.complete
    list(group.hello(C, hello(auto("c", 1, 3)), 4.0))
    assert ranks(group, A, B, C) == [None, 1, 2]


def test_a_fixed_one_that_goes_leaves_the_others_waiting() -> None:
    group = membership()
    join(group, identity(1), A)
    group.unreachable(A, 2.0)
    list(group.hello(B, hello(auto("b", 1, 2)), 3.0))
    assert not group.complete
    list(group.hello(C, hello(auto("a", 1, 3)), 4.0))
    assert ranks(group, C, B) == [1, 2]


def test_one_that_asks_again_or_over_a_new_connection_counts_once() -> None:
    group = membership()
    for peer in (A, A, B):
        list(group.hello(peer, hello(auto("a", 1, 1)), 1.0))
        assert not group.complete
    group.unreachable(A, 2.0)
    list(group.hello(C, hello(auto("b", 1, 2)), 3.0))
    assert ranks(group, A, B, C) == [None, 1, 2]


def test_those_who_wait_are_told_once_a_second_for_whom() -> None:
    group = membership(5)
    join(group, identity(1, 5), A)
    list(group.hello(B, hello(auto("b", 1, 2, 5)), 1.0))
    told = list(group.tick(10.0))
    assert [(send.peer, send.message.session) for send in told] == [(A, 77), (B, 0)]
    for send in told:
        assert parse_fields(send.message.body) == {"missing": [3, 4]}
    assert list(group.tick(10.9)) == []
    assert [send.peer for send in group.probe_unranked()] == [B]


def test_it_comes_back_to_the_rank_that_it_was_given() -> None:
    group = membership()
    list(group.hello(A, hello(auto("a", 1, 1)), 1.0))
    list(group.hello(B, hello(auto("b", 1, 2)), 1.0))
    group.unreachable(B, 2.0)
    # Its WELCOME was lost with the connection: it still knows of no rank.
    (welcome, _) = group.hello(C, hello(auto("b", 1, 2)), 2.5)
    assert isinstance(welcome, Send)
    assert (welcome.message.kind, welcome.message.rank) == (Kind.WELCOME, 2)
    group.unreachable(C, 3.0)
    known = identity(2, host="b", pid=1, incarnation=2)
    assert join(group, known, D).kind is Kind.WELCOME
    assert ranks(group, A, D) == [1, 2]


def test_nobody_comes_in_when_every_rank_is_given() -> None:
    group = membership(2)
    list(group.hello(A, hello(auto("a", 1, 1, 2)), 1.0))
    kind, reason = refusal(join(group, auto("b", 1, 2, 2), B))
    assert (kind, reason) == (Refusal.TAKEN, "all 2 ranks are taken")
    assert refusal(join(group, identity(1, 2), B))[0] is Refusal.TAKEN
    group.closing = True
    assert refusal(join(group, auto("b", 1, 2, 2), B))[0] is Refusal.CLOSING


def test_who_was_given_up_does_not_come_back() -> None:
    group = membership(2)
    list(group.hello(A, hello(auto("a", 1, 1, 2)), 1.0))
    group.dismiss(group.members[1], State.LOST)
    assert refusal(join(group, auto("a", 1, 1, 2), B))[0] is Refusal.LOST


def test_one_of_another_job_is_told_so_without_a_rank() -> None:
    group = membership()
    _, note = group.hello(A, hello(auto("a", 1, 1), job="other"), 1.0)
    assert "refused a replica without a rank (a, pid 1)" in str(note)
    reject = answers(group.hello(A, hello(auto("a", 1, 1, 4)), 1.0))[0]
    assert "a replica without a rank num_replicas=4" in refusal(reject)[1]


# --- through rank 0's machine, and the replica's own ------------------------------


def test_everybody_is_told_that_the_group_is_complete() -> None:
    zero = Zero(3, joined=False)
    for peer, who in ((A, auto("b", 1, 1)), (B, auto("a", 1, 2))):
        told = zero.machine
        told.receive(peer, hello(who), zero.now)
    sends = [each for each in zero.machine.take() if isinstance(each, Send)]
    kinds = {p: [s.message.kind for s in sends if s.peer == p] for p in (A, B)}
    assert kinds == {p: [Kind.WELCOME, Kind.READY] for p in (A, B)}


def test_a_dead_connection_is_found_as_soon_as_any_ends() -> None:
    zero = Zero(3, joined=False)
    zero.machine.receive(A, hello(auto("a", 1, 1)), zero.now)
    zero.machine.take()
    zero.machine.probe()
    (send,) = zero.machine.take()
    assert isinstance(send, Send)
    assert send.peer == A
    zero.machine.unreachable(A, zero.now)
    assert zero.machine.membership.absent == [1, 2]


def without_rank() -> One:
    bench = One(joined=False)
    who = Identity(
        AUTO_RANK,
        3,
        *[
            getattr(IDENTITY, n)
            for n in ("host", "pid", "incarnation", "package", "python")
        ],
    )
    bench.replica = Replica(who, "job", Timing(), Link(grants=True))
    return bench


TABLE = pack_fields(
    {"replicas": [{"rank": rank, "host": "h", "pid": rank} for rank in range(3)]}
)


def test_a_replica_asks_until_it_has_a_rank() -> None:
    bench = without_rank()
    bench.replica.connected(10.0)
    bench.replica.take()
    bench.hear(Kind.WAITING, session=0, body=pack_fields({"missing": [2]}))
    assert bench.replica.waiting_for == [2]
    (again,) = sent(bench.tick(11.0))
    assert (again.kind, again.rank) == (Kind.HELLO, 0)
    assert read_identity(parse_fields(again.body)).rank == AUTO_RANK
    bench.hear(Kind.WELCOME, rank=2)
    assert bench.replica.identity.rank == 2
    (said,) = bench.hear(Kind.READY, body=TABLE)
    assert isinstance(said, Joined)
    bench.call()
    assert [message.rank for message in sent(bench.replica.take())] == [2]


def test_before_ready_another_rank_0_may_give_another_rank() -> None:
    bench = without_rank()
    bench.replica.connected(10.0)
    bench.hear(Kind.WELCOME, rank=2)
    bench.replica.disconnected(10.5)
    bench.replica.connected(11.0)
    (hello,) = sent(bench.replica.take())
    assert read_identity(parse_fields(hello.body)).rank == AUTO_RANK
    bench.hear(Kind.WELCOME, session=SESSION + 1, rank=1)
    assert bench.replica.identity.rank == 1


def test_afterwards_it_comes_back_with_its_rank() -> None:
    bench = without_rank()
    bench.replica.connected(10.0)
    bench.hear(Kind.WELCOME, rank=2)
    bench.hear(Kind.READY, body=TABLE)
    bench.replica.disconnected(10.5)
    bench.replica.connected(11.0)
    (hello,) = sent(bench.replica.take())
    assert read_identity(parse_fields(hello.body)).rank == 2
    assert hello.ack == 1

"""Groups at rank 0's machine: their numbering, their ends, and what is left of them."""

from typing import Any

import pytest
from core.coordinator_bench import (
    SESSION,
    Bench,
    messages,
    new_groups,
    over,
    peer,
    told,
)

from zcoll.errors import (
    AbortedError,
    ClosedError,
    CollectiveError,
    MismatchError,
    ReplicaExitedError,
    ReplicaLostError,
)
from zcoll.operations import (
    ALLREDUCE,
    BARRIER,
    BROADCAST,
    DUP,
    GATHER,
    GROUP,
    SPLIT,
    TEARDOWN,
    Operation,
)
from zcoll.payload import Payload
from zcoll.protocol.events import WORLD, CoordinatorInstruction, Fold, Forget, Note
from zcoll.protocol.failures import from_fields
from zcoll.protocol.plans import pack_color, pack_ranks
from zcoll.wire import Flag, Kind, pack_fields, pack_sizes, parse_fields

GOODBYE = pack_fields({"reason": ""})


def _groups(bench: Bench) -> list[int]:
    return [group for group, _ in bench.machine.decisions.groups]


def _ended(instructions: list[CoordinatorInstruction]) -> dict[int, set[bytes]]:
    """Which groups are over, and who is told so."""
    found: dict[int, set[bytes]] = {}
    for each in instructions:
        message = getattr(each, "message", None)
        if message is not None and message.kind is Kind.OVER:
            found.setdefault(message.group, set()).add(each.peer)  # type: ignore[union-attr]
    return found


def _all(bench: Bench, group: int, operation: Operation = BARRIER) -> list[Kind]:
    """Let all members of a group call; what each of them is told."""
    calls = bench.machine.decisions.groups.find(group)
    assert calls is not None
    last: list[CoordinatorInstruction] = []
    for rank in calls.roll.ranks:
        last = bench.call(rank, operation, group=group)
    kinds = set(map(tuple, told(last).values()))
    assert len(told(last)) == len(calls.roll.ranks)
    (kind,) = kinds
    return list(kind)


def _close(bench: Bench, rank: int, group: int) -> list[CoordinatorInstruction]:
    return bench.hear(rank, Kind.CLOSE, group=group, body=GOODBYE)


def _lost(bench: Bench, rank: int) -> list[CoordinatorInstruction]:
    bench.machine.unreachable(peer(rank), bench.now)
    bench.now += 2.0
    bench.machine.tick(bench.now)
    return bench.machine.take()


# --- making them ------------------------------------------------------------------


def test_each_member_is_told_of_its_group_only() -> None:
    bench = Bench(4)
    colors = {0: 1, 3: None, 2: 2, 1: 1}
    last = []
    for rank, color in colors.items():
        last = bench.call(rank, SPLIT, value=pack_color(color, -rank))
    told_of = {}
    for each in last:
        message = each.message  # type: ignore[union-attr]
        body = message.payload.parts[0] if message.payload else message.body
        told_of[each.peer] = parse_fields(body)  # type: ignore[union-attr]
    name = "split of the world, call 1, color"
    first = {"group": 2, "name": f"{name} 1", "ranks": [1, 0]}
    assert told_of == {
        peer(0): first,
        peer(1): first,
        peer(2): {"group": 1, "name": f"{name} 2", "ranks": [2]},
        peer(3): {"group": None},
    }


def test_each_group_has_its_own_numbering() -> None:
    bench = Bench(3)
    one, other = bench.make(1, 2, 1)
    assert _all(bench, one) == [Kind.OUTCOME]
    assert _all(bench, one) == [Kind.OUTCOME]
    bench.call(0)
    bench.call(2, group=one)
    assert _all(bench, other) == [Kind.OUTCOME]
    (end,) = {m.seq for m in messages(bench.call(0, group=one), Kind.OUTCOME)}
    assert end == 3
    bench.call(1)
    (end,) = {m.seq for m in messages(bench.call(2), Kind.OUTCOME)}
    assert end == 2


def test_replicas_that_name_different_ranks_get_an_error_and_go_on() -> None:
    bench = Bench(2)
    bench.call(1, GROUP, value=pack_ranks([1]))
    failures = messages(bench.call(0, GROUP, value=pack_ranks([0])), Kind.FAILURE)
    error = from_fields(parse_fields(failures[0].body))
    assert isinstance(error, CollectiveError)
    assert "replicas 0 and 1 name different ranks, [0] and [1]" in str(error)
    assert len(failures) == 2
    assert _groups(bench) == [WORLD]
    assert _all(bench, WORLD) == [Kind.OUTCOME]


def test_an_error_in_a_group_names_it() -> None:
    bench = Bench(2)
    (group,) = bench.make(1, 1)
    bench.call(0, GROUP, value=pack_ranks([0]), group=group)
    last = bench.call(1, GROUP, value=pack_ranks([1]), group=group)
    error = from_fields(parse_fields(messages(last, Kind.FAILURE)[0].body))
    assert error.group == "split of the world, call 1, color 1"


# --- who may say what -------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [Kind.CONTRIBUTE, Kind.LEAVE, Kind.CLOSE, Kind.FUNCTION]
)
@pytest.mark.parametrize(
    ("group", "why"), [(3, "there is no group 3"), (2, "replica 2 is not in group 2")]
)
def test_messages_for_a_group_of_others_are_a_protocol_error(
    kind: Kind, group: int, why: str
) -> None:
    bench = Bench(3)
    assert bench.make(1, 2, 1) == [1, 2]
    said = bench.hear(2, kind, group=group, seq=1, operation=BARRIER.code)
    assert list(_ended(said)) == [WORLD, 1, 2]
    for error, text, _ in over(said):
        assert error is ReplicaLostError
        assert why in text


def test_a_second_leave_is_a_protocol_error() -> None:
    bench = Bench(2)
    bench.call(0)
    assert bench.hear(1, Kind.LEAVE)
    ((error, text, _),) = over(bench.hear(1, Kind.LEAVE))
    assert error is ReplicaLostError
    assert "has left its group twice" in text


def test_late_messages_for_a_forgotten_group_are_ignored() -> None:
    bench = Bench(2)
    (group,) = bench.make(1, 1)
    for rank in (0, 1):
        bench.call(rank, TEARDOWN, group=group)
    assert _groups(bench) == [WORLD]
    for kind in (Kind.LEAVE, Kind.FUNCTION):
        assert bench.hear(1, kind, group=group) == []
    assert _close(bench, 1, group) == []
    head: dict[str, Any] = {"flags": Flag.CHUNKED, "value": pack_sizes([2])}
    assert bench.call(1, ALLREDUCE, group=group, **head) == []
    assert not bench.machine.membership.members[1].link._assembling
    bench.machine.folded(group, 1, [Payload([b"late"])], None)
    assert bench.machine.take() == []
    assert _all(bench, WORLD) == [Kind.OUTCOME]


# --- how they end -----------------------------------------------------------------


def test_a_mismatch_ends_its_group_and_those_below() -> None:
    bench = Bench(4)
    one, other = bench.make(1, 1, 2, 2)
    (below,) = bench.make(3, 3, group=one)
    bench.call(0, group=one)
    ended = bench.call(1, ALLREDUCE, value=b"x", group=one)
    assert _ended(ended) == {g: {peer(0), peer(1)} for g in (one, below)}
    ((error, text, _),) = {(*each[:2], 0) for each in over(ended)}
    assert error is MismatchError
    name = "split of the world, call 1, color 1"
    assert text.startswith(f"replicas disagree on call 2 of group {name!r}")
    assert _all(bench, other) == [Kind.OUTCOME]
    assert _all(bench, WORLD) == [Kind.OUTCOME]


def test_a_mismatch_also_ends_a_group_that_is_made_by_a_call_before() -> None:
    bench = Bench(2)
    bench.call(0, SPLIT, value=pack_color(1, 0))
    bench.call(0)
    chunked: dict[str, Any] = {"flags": Flag.CHUNKED}
    color = pack_color(1, 0)
    bench.call(1, SPLIT, value=pack_sizes([len(color)]), **chunked)
    assert list(_ended(bench.call(1, TEARDOWN))) == [WORLD]
    place = b"\0" * 12
    last = bench.hear(1, Kind.CHUNK, seq=1, body=place, data=color)
    assert new_groups(last) == [1]
    assert told(last)[peer(1)] == [Kind.OUTCOME, Kind.OVER], "in this order"
    assert _ended(last) == {1: {peer(0), peer(1)}}


def test_the_loss_of_a_replica_ends_every_group() -> None:
    bench = Bench(3)
    one, other = bench.make(1, 1, 2)
    ended = _lost(bench, 2)
    rest = {peer(0), peer(1)}
    assert _ended(ended) == {WORLD: rest, one: rest}  # nobody of the other is left
    assert {kind for kind, _, _ in over(ended)} == {ReplicaLostError}
    limits = {g: calls.limit for g, calls in bench.machine.decisions.groups}
    assert limits == {WORLD: 1, one: 0, other: 0}


def test_a_loss_is_told_with_the_last_call_in_any_group() -> None:
    bench = Bench(2)
    (group,) = bench.make(1, 1)
    bench.call(1, group=group, site="a.py:5 f")
    ((_, text, _), *_) = over(_lost(bench, 1))
    name = "split of the world, call 1, color 1"
    assert text.endswith(
        f"last call was barrier(), call 1 of group {name!r} (a.py:5 f)"
    )


def test_an_exit_ends_only_groups_that_contain_the_replica() -> None:
    bench = Bench(4)
    one, other = bench.make(1, 1, 2, 2)
    ended = bench.hear(3, Kind.BYE, body=GOODBYE)
    assert _ended(ended) == {
        WORLD: {peer(0), peer(1), peer(2)},
        other: {peer(2)},
    }
    assert {kind for kind, _, _ in over(ended)} == {ReplicaExitedError}
    assert _all(bench, one) == [Kind.OUTCOME]


def test_an_exit_does_not_end_what_the_replica_has_left() -> None:
    bench = Bench(3)
    (group,) = bench.make(1, 1, 1)
    bench.call(2, group=group)
    bench.hear(2, Kind.LEAVE, group=group)
    assert list(_ended(bench.hear(2, Kind.BYE, body=GOODBYE))) == [WORLD]
    for rank in (0, 1):
        bench.call(rank, group=group)
    bench.call(0, group=group)
    assert len(messages(bench.call(1, group=group), Kind.OUTCOME)) == 2


def test_an_exit_ends_what_the_replica_has_left_but_not_sent() -> None:
    bench = Bench(2)
    (group,) = bench.make(1, 1)
    bench.call(1, group=group)
    head: dict[str, Any] = {"flags": Flag.CHUNKED, "value": pack_sizes([9])}
    bench.call(1, BROADCAST, root=1, group=group, **head)
    bench.hear(1, Kind.LEAVE, group=group)
    ended = {
        m.group: parse_fields(m.body)["after"]
        for m in messages(bench.hear(1, Kind.BYE, body=GOODBYE), Kind.OVER)
    }
    assert ended == {WORLD: 1, group: 1}


def test_a_group_that_is_made_after_a_member_has_gone_ends_at_once() -> None:
    bench = Bench(3)
    bench.call(1, DUP)
    bench.hear(1, Kind.BYE, body=GOODBYE)
    bench.call(0, DUP)
    last = bench.call(2, DUP)
    assert new_groups(last) == [1]
    assert told(last)[peer(2)] == [Kind.OUTCOME, Kind.OVER], "in this order"
    assert _ended(last) == {1: {peer(0), peer(2)}}


def test_an_abort_ends_every_group() -> None:
    bench = Bench(3)
    one, other = bench.make(1, 1, 2)
    ended = bench.hear(2, Kind.ABORT, body=pack_fields({"reason": "no disk"}))
    assert list(_ended(ended)) == [WORLD, one, other]
    assert {kind for kind, _, _ in over(ended)} == {AbortedError}


def test_a_torn_down_group_takes_those_below_with_it() -> None:
    bench = Bench(2)
    (one,) = bench.make(1, 1)
    (below,) = bench.make(1, 1, group=one)
    (lowest,) = bench.make(1, 1, group=below)
    bench.call(0, TEARDOWN, group=one)
    last = bench.call(1, TEARDOWN, group=one)
    assert list(_ended(last)) == [below, lowest]
    assert {kind for kind, _, _ in over(last)} == {ClosedError}
    assert _groups(bench) == [WORLD]
    assert [each.group for each in last if isinstance(each, Forget)] == [
        below,
        lowest,
        one,
    ]


def test_what_everybody_has_called_below_is_still_decided() -> None:
    bench = Bench(2)
    (group,) = bench.make(1, 1)
    head: dict[str, Any] = {"flags": Flag.CHUNKED, "value": pack_sizes([1])}
    for _ in range(2):
        bench.call(1, BROADCAST, root=1, group=group, **head)
    bench.call(0, BROADCAST, root=1, group=group)
    bench.call(1, TEARDOWN)
    ended = bench.call(0, TEARDOWN)
    assert [after for _, _, after in over(ended)] == [1]
    assert _groups(bench) == [WORLD, group]
    place = b"\0" * 12
    done = bench.hear(1, Kind.CHUNK, group=group, seq=1, body=place, data=b"x")
    assert len(messages(done, Kind.OUTCOME)) == 2
    assert _groups(bench) == [WORLD]


def test_a_group_made_of_a_forgotten_one_ends_with_what_was_above() -> None:
    bench = Bench(2)
    (one,) = bench.make(1, 1)
    (below,) = bench.make(1, 1, group=one)
    for rank in (0, 1):
        _close(bench, rank, one)
    assert _groups(bench) == [WORLD, below]
    assert _all(bench, below) == [Kind.OUTCOME], "it does not mind"
    bench.call(0, TEARDOWN)
    assert list(_ended(bench.call(1, TEARDOWN))) == [below]
    assert _groups(bench) == [WORLD]


# --- closing them -----------------------------------------------------------------


def test_a_group_that_one_has_closed_ends_for_the_others_with_the_reason() -> None:
    bench = Bench(2)
    (group,) = bench.make(1, 1)
    bench.call(1, group=group, site="a.py:1")
    body = pack_fields({"reason": "ValueError: no"})
    ended = bench.hear(1, Kind.CLOSE, group=group, body=body)
    (message, *_) = messages(ended, Kind.OVER)
    error = from_fields(parse_fields(message.body))
    name = "split of the world, call 1, color 1"
    assert str(error) == (
        f"replica 1 (host, pid 1001) has closed group {name!r} after barrier(), "
        "call 1 (a.py:1): ValueError: no"
    )
    assert isinstance(error, ReplicaExitedError)
    assert (error.reason, error.rank) == ("ValueError: no", 1)
    assert len(messages(bench.call(0, group=group), Kind.OUTCOME)) == 2
    assert _all(bench, WORLD) == [Kind.OUTCOME]


def test_who_has_closed_learns_that_its_outstanding_calls_end() -> None:
    bench = Bench(3)
    (group,) = bench.make(1, 1, 1)
    bench.call(1, group=group)
    _close(bench, 1, group)
    ended = _close(bench, 2, group)  # before it has made that call
    assert peer(1) in _ended(ended)[group]
    assert [after for _, _, after in over(ended)] == [0]


def test_nothing_is_kept_of_groups_that_all_have_closed() -> None:
    bench = Bench(3)
    for _ in range(3):
        groups = bench.make(1, 1, 2)
        for group in groups:
            calls = bench.machine.decisions.groups.find(group)
            assert calls is not None
            for rank in calls.roll.ranks:
                bench.call(rank, GATHER, value=b"x", group=group)
        for group in groups:
            calls = bench.machine.decisions.groups.find(group)
            assert calls is not None
            for rank in calls.roll.ranks:
                last = _close(bench, rank, group)
            assert Forget(group) in last
    machine = bench.machine
    assert _groups(bench) == [WORLD]
    assert len(machine.decisions.groups) == 1
    assert machine.decisions.groups._parents == {}
    assert set(machine.decisions.groups._latest) <= {0, 1, 2}
    assert machine.reports.reducing == {}
    for member in machine.membership.members:
        for kept in (member.link._assembling, member.link._waiting):
            assert not kept


def test_a_closed_group_stays_until_its_calls_have_ended() -> None:
    bench = Bench(2)
    (group,) = bench.make(1, 1)
    for rank in (0, 1):
        bench.call(rank, ALLREDUCE, value=b"x", group=group)
        _close(bench, rank, group)
    assert _groups(bench) == [WORLD, group]
    bench.machine.folded(group, 1, [Payload([b"xx"], stable=True)], None)
    last = bench.machine.take()
    assert len(messages(last, Kind.OUTCOME)) == 2
    assert Forget(group) in last


# --- functions --------------------------------------------------------------------


def test_a_group_without_rank_0_folds_by_its_first_members_function() -> None:
    bench = Bench(3)
    _, group = bench.make(1, 2, 2)
    bench.call(1, ALLREDUCE, value=b"a", group=group)
    assert bench.call(2, ALLREDUCE, value=b"b", group=group) == []
    (fold,) = bench.hear(1, Kind.FUNCTION, group=group, seq=1, body=b"f")
    assert isinstance(fold, Fold)
    assert (fold.call.function, [rank for rank, _ in fold.operands]) == (b"f", [1, 2])


def test_a_function_that_cannot_travel_fails_the_call_for_everybody() -> None:
    bench = Bench(3)
    _, group = bench.make(1, 2, 2)
    bench.call(1, ALLREDUCE, value=b"a", group=group)
    fields = {
        "error": "EncodeError",
        "message": "no",
        "op": "",
        "seq": 0,
        "rank": 1,
        "site": "",
        "remote_traceback": "",
        "group": "",
    }
    poison: dict[str, Any] = {"flags": Flag.POISONED, "body": pack_fields(fields)}
    assert bench.hear(1, Kind.FUNCTION, group=group, seq=1, **poison) == []
    failed = bench.call(2, ALLREDUCE, value=b"b", group=group)
    assert set(told(failed)) == {peer(1), peer(2)}
    assert all(kinds == [Kind.FAILURE] for kinds in told(failed).values())
    assert _all(bench, group) == [Kind.OUTCOME]


# --- rank 0 serves ----------------------------------------------------------------


def test_rank_0_is_needed_by_those_who_may_still_call() -> None:
    bench = Bench(4)
    decisions = bench.machine.decisions
    for rank in range(4):
        bench.call(rank)
    assert not decisions.serving
    bench.hear(0, Kind.LEAVE)
    assert (decisions.serving, decisions.users) == (True, [1, 2, 3])
    bench.hear(2, Kind.LEAVE)
    assert decisions.users == [1, 3]
    bench.hear(3, Kind.BYE, body=GOODBYE)
    assert not decisions.serving, "replica 3 has not left, so nobody can go on"


def test_rank_0_is_needed_by_groups_that_it_is_not_in() -> None:
    bench = Bench(3)
    _, group = bench.make(1, 2, 2)
    decisions = bench.machine.decisions
    assert decisions.users == [1, 2]
    bench.call(1, group=group)
    _close(bench, 1, group)
    assert decisions.users == [1, 2], "a call that both may still make"
    bench.call(2, group=group)
    assert not decisions.serving


def test_a_call_from_before_rank_0_left_is_waited_for() -> None:
    bench = Bench(2)
    bench.call(0, ALLREDUCE, value=b"a")
    bench.hear(0, Kind.LEAVE)
    bench.hear(1, Kind.LEAVE)
    assert not bench.machine.decisions.users
    bench = Bench(2)
    for rank in (0, 1):
        bench.call(rank, ALLREDUCE, value=b"a")
        bench.hear(rank, Kind.LEAVE)
    assert bench.machine.decisions.serving
    bench.machine.folded(WORLD, 1, [Payload([b"aa"], stable=True)], None)
    assert not bench.machine.decisions.serving


def test_strangers_are_told_the_group_of_the_call_in_progress() -> None:
    bench = Bench(2)
    (group,) = bench.make(1, 1)
    bench.call(1, group=group)
    pong = bench.hear(0, Kind.PING, body=b" " * 4000)
    fields = parse_fields(messages(pong, Kind.PONG)[0].body)
    assert fields["call"]["group"] == "split of the world, call 1, color 1"
    assert fields["call"]["ranks"] == [0]


def test_a_report_says_what_the_missing_called_last_in_the_group() -> None:
    bench = Bench(2)
    (group,) = bench.make(1, 1)
    bench.call(1, group=group)
    bench.call(0, group=group)
    bench.call(1)
    bench.call(0, group=group)
    fields = bench.machine.reports.report(group, 2, bench.now)
    name = "split of the world, call 1, color 1"
    (absence,) = fields["absences"]
    assert absence["last_call"] == f"barrier(), call 1 of group {name!r}"


def test_a_goodbye_after_the_end_is_no_news() -> None:
    bench = Bench(2)
    (group,) = bench.make(1, 1)
    for number in (WORLD, group):
        for rank in (0, 1):
            if number in _groups(bench):
                bench.call(rank, TEARDOWN, group=number)
    said = bench.hear(1, Kind.BYE, body=GOODBYE)
    assert not [each for each in said if isinstance(each, Note)]
    assert told(said) == {peer(1): [Kind.ACK]}
    assert SESSION in {m.session for m in messages(said, Kind.ACK)}

"""Replicas that leave a group, in every order relative to open calls."""

import itertools
from collections.abc import Iterable

import pytest
from core.calls_bench import message, run, show

from zcoll.errors import CollectiveError, ProtocolError, ReplicaExitedError
from zcoll.operations import (
    ALLGATHER,
    ALLREDUCE,
    BARRIER,
    BROADCAST,
    OPERATIONS,
    REDUCE,
    TEARDOWN,
    Operation,
)
from zcoll.payload import Payload
from zcoll.protocol.calls import Calls
from zcoll.protocol.steps import Decide, Fetch, FoldNext, Grant, Step
from zcoll.wire import Kind, Message

GONE = ReplicaExitedError("gone", rank=1)


def _function(seq: int, body: bytes = b"f") -> Message:
    return Message(Kind.FUNCTION, seq=seq, body=body)


def _show(steps: Iterable[Step]) -> list[str]:
    """As ``show``, and who is asked for its function, who is active."""
    lines = []
    for step in steps:
        if isinstance(step, Fetch):
            lines.append(f"fetch {step.rank} {step.seq}")
        else:
            lines += show([step])
        if isinstance(step, Decide) and step.active is not None:
            lines[-1] += f" active={step.active}"
    return lines


# --- what is decided without it ---------------------------------------------------


def test_who_leaves_first_is_not_waited_for() -> None:
    calls = Calls([0, 1, 2])
    assert _show(calls.leave(2)) == []
    calls_of_both = [(rank, message(BARRIER)) for rank in (0, 1)]
    assert run(calls, *calls_of_both) == ["decide 1"]


def test_who_leaves_last_decides_what_the_others_have_called() -> None:
    calls = Calls([0, 1, 2])
    for seq in (1, 2, 3):
        for rank in (0, 1):
            assert run(calls, (rank, message(BARRIER, seq))) == []
    assert run(calls, (2, message(BARRIER))) == ["decide 1"]
    assert _show(calls.leave(2)) == ["decide 2 active=[0, 1]", "decide 3"]


def test_what_it_has_called_before_still_counts() -> None:
    calls = Calls([0, 1])
    run(calls, (1, message(ALLREDUCE, 1, value=b"b")), (1, message(BARRIER, 2)))
    assert _show(calls.leave(1)) == []
    assert run(calls, (0, message(ALLREDUCE, 1, value=b"a"))) == ["fold 1 0,1 last"]
    assert _show(calls.folded(1, [Payload([b"ab"])], None)) == ["decide 1 ab"]
    assert run(calls, (0, message(BARRIER, 2))) == ["decide 2"]
    steps = calls.contribute(0, message(BARRIER, 3))
    assert _show(steps) == ["decide 3 active=[0]"]


def test_everybody_leaves() -> None:
    calls = Calls([0, 1])
    run(calls, (0, message(BARRIER)))
    assert _show(calls.leave(1)) == ["decide 1 active=[0]"]
    assert _show(calls.leave(0)) == []
    assert not calls.open
    assert calls.made == 1


def test_what_all_have_made_does_not_become_less_when_they_leave() -> None:
    calls = Calls([0, 1, 2])
    assert calls.made == 0
    for rank, last in enumerate([3, 1, 2]):
        for seq in range(1, last + 1):
            run(calls, (rank, message(ALLREDUCE, seq, size=9)))
    made = [calls.made]
    for rank in (1, 2, 0):
        list(calls.leave(rank))
        made.append(calls.made)
    assert made == [1, 2, 3, 3]


def test_twice_is_a_protocol_error() -> None:
    calls = Calls([0, 1])
    run(calls, (0, message(BARRIER)))
    list(calls.leave(1))
    with pytest.raises(ProtocolError, match="replica 1 has left its group twice"):
        list(calls.leave(1))


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
@pytest.mark.parametrize(
    "order", ["".join(each) for each in itertools.permutations("01L")]
)
def test_in_any_order_relative_to_the_others_calls(
    operation: Operation, order: str
) -> None:
    if operation.spread or operation.makes is not None:
        value = b"\0\0\0\0"
    else:
        value = b"x" if operation is not BARRIER else b""
    calls = Calls([0, 1, 2])
    made = message(operation, value=value)
    if operation.spread or operation.makes is not None:
        made.payload = None
        made.flags, made.body = 1, b"\0" * 7 + b"\x09"  # chunks: never looked at
    steps: list[Step] = []
    for each in order:
        if each == "L":
            steps += calls.leave(2)
        else:
            steps += calls.contribute(int(each), made)
    call = calls.pending()
    assert calls.roll.expected(1) == [0, 1]
    assert calls.roll.missing(1) == []
    if call is None or call.folding:
        decided = [s for s in steps if isinstance(s, Decide | FoldNext)]
        assert len(decided) == 1
    else:  # it waits for chunks
        granted = [s.rank for s in steps if isinstance(s, Grant)]
        assert granted == operation.contributors([0, 1], 0)


# --- its own part in a call -------------------------------------------------------


@pytest.mark.parametrize("operation", [BROADCAST, REDUCE])
@pytest.mark.parametrize("first", [True, False])
def test_a_call_rooted_at_it_fails(operation: Operation, first: bool) -> None:
    calls = Calls([3, 1, 2])
    made = [(rank, message(operation, root=1, value=b"x")) for rank in (3, 2)]
    if first:
        list(calls.leave(1))
        steps = [step for rank, m in made for step in calls.contribute(rank, m)]
    else:
        run(calls, *made)
        steps = list(calls.leave(1))
    (decide,) = (step for step in steps if isinstance(step, Decide))
    assert isinstance(decide.error, CollectiveError)
    assert decide.error.rank == 1
    assert "its root, replica 1, has left the group" in str(decide.error)


def test_a_call_rooted_at_it_that_it_made_before_does_not_fail() -> None:
    calls = Calls([0, 1])
    run(calls, (1, message(BROADCAST, root=1, value=b"x")))
    list(calls.leave(1))
    assert run(calls, (0, message(BROADCAST, root=1))) == ["decide 1 x"]


def test_a_pending_grant_of_others_goes_on() -> None:
    calls = Calls([0, 1, 2, 3])
    for rank in (0, 2, 3):
        run(calls, (rank, message(ALLGATHER, size=9)))
    assert _show(calls.leave(1)) == ["grant 2 1", "grant 3 1"]
    for rank in (0, 2):
        list(calls.complete(rank, 1, Payload([b"x"])))
    (decide,) = calls.complete(3, 1, Payload([b"x"]))
    assert isinstance(decide, Decide)
    assert calls._grants.held == 0


def test_in_the_middle_of_a_fold() -> None:
    calls = Calls([0, 1, 2])
    run(calls, (0, message(ALLREDUCE, value=b"a")))
    run(calls, (2, message(ALLREDUCE, size=9)))
    run(calls, (1, message(ALLREDUCE, value=b"b")))  # the fold of 0 and 1 begins
    assert _show(calls.leave(1)) == []
    assert _show(calls.complete(2, 1, Payload([b"c"]))) == []
    assert _show(calls.folded(1, None, None)) == ["fold 1 2 last"]


# --- whose function ---------------------------------------------------------------


def test_rank_0_leaves_before_and_the_next_rank_is_asked_for_its_function() -> None:
    calls = Calls([0, 1, 2])
    list(calls.leave(0))
    steps = calls.contribute(2, message(ALLREDUCE, value=b"c"))
    assert _show(steps) == []
    steps = calls.contribute(1, message(ALLREDUCE, value=b"b"))
    assert _show(steps) == ["fetch 1 1"]
    assert _show(calls.equip(2, _function(1, b"of 2"))) == [], "nobody asked it"
    (fold,) = calls.equip(1, _function(1))
    assert isinstance(fold, FoldNext)
    assert (fold.call.function, fold.last) == (b"f", True)


def test_rank_0_leaves_after_the_next_rank_has_called() -> None:
    calls = Calls([0, 1, 2])
    run(calls, (1, message(ALLREDUCE, value=b"b")))
    assert _show(calls.leave(0)) == ["fetch 1 1"]
    assert _show(calls.equip(1, _function(1))) == []
    steps = calls.contribute(2, message(ALLREDUCE, value=b"c"))
    assert _show(steps) == ["fold 1 1,2 last"]


def test_rank_0s_own_last_call_needs_no_other_function() -> None:
    calls = Calls([0, 1])
    run(calls, (0, message(ALLREDUCE, value=b"a")))
    list(calls.leave(0))
    assert run(calls, (1, message(ALLREDUCE, value=b"b"))) == ["fold 1 0,1 last"]


def test_a_group_of_others_gets_the_function_of_its_first_member_unasked() -> None:
    calls = Calls([5, 3, 7])
    for rank in (3, 7):
        assert _show(calls.contribute(rank, message(ALLREDUCE, value=b"x"))) == []
    assert _show(calls.contribute(5, message(ALLREDUCE, value=b"x"))) == []
    assert _show(calls.equip(5, _function(1))) == ["fold 1 5,3,7 last"]


def test_its_first_member_leaves() -> None:
    calls = Calls([5, 3, 7])
    for rank in (3, 7):
        run(calls, (rank, message(ALLREDUCE, value=b"x")))
    assert _show(calls.leave(5)) == ["fetch 3 1"]
    assert _show(calls.equip(3, _function(1))) == ["fold 1 3,7 last"]


def test_all_before_the_last_leave_one_by_one() -> None:
    calls = Calls([0, 1, 2])
    run(calls, (2, message(ALLREDUCE, value=b"c")))
    assert _show(calls.leave(1)) == []
    assert _show(calls.leave(0)) == ["fetch 2 1"]
    assert _show(calls.equip(2, _function(1))) == ["fold 1 2 last"]
    steps = calls.folded(1, [Payload([b"c"])], None)
    assert _show(steps) == ["decide 1 c active=[2]"]


def test_a_function_that_comes_late_is_ignored() -> None:
    calls = Calls([0, 1])
    assert _show(calls.equip(1, _function(1))) == []
    run(calls, (0, message(BARRIER)), (1, message(BARRIER)))
    assert _show(calls.equip(1, _function(1))) == []


# --- and goes ---------------------------------------------------------------------


def test_who_has_left_and_given_all_may_go() -> None:
    calls = Calls([0, 1])
    run(calls, (1, message(ALLREDUCE, value=b"b")))
    list(calls.leave(1))
    assert _show(calls.exit(1, GONE)) == []
    assert run(calls, (0, message(ALLREDUCE, value=b"a"))) == ["fold 1 0,1 last"]


def test_who_has_left_and_not_sent_its_payload_may_not() -> None:
    calls = Calls([0, 1])
    run(calls, (1, message(BARRIER)), (1, message(ALLREDUCE, 2, size=9)))
    list(calls.leave(1))
    assert _show(calls.exit(1, GONE)) == ["end 1 ReplicaExitedError"]


def test_who_has_left_and_gone_is_asked_for_its_function() -> None:
    calls = Calls([0, 1])
    run(calls, (1, message(ALLREDUCE, value=b"b")))
    list(calls.leave(1))
    assert _show(calls.exit(1, GONE)) == []
    steps = _show(calls.leave(0))
    assert steps[-1] == "end 0 ReplicaExitedError", "nobody else knows it"


def test_a_teardown_is_also_for_those_who_have_left() -> None:
    calls = Calls([0, 1, 2])
    list(calls.leave(1))
    assert run(calls, *((rank, message(TEARDOWN)) for rank in (0, 2))) == ["decide 1"]
    assert calls.torn_down

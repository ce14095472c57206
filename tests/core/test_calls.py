import pytest
from core.calls_bench import message, run, show

from zcoll.errors import GroupError, MismatchError, ProtocolError, ReduceError
from zcoll.operations import ALLREDUCE, BARRIER, BROADCAST, TEARDOWN
from zcoll.payload import Payload
from zcoll.protocol.calls import Calls
from zcoll.protocol.failures import to_fields
from zcoll.protocol.steps import End
from zcoll.wire import Kind, Message, pack_fields

# --- decisions --------------------------------------------------------------------


def test_a_barrier_is_decided_when_everybody_is_there() -> None:
    calls = Calls([0, 1, 2])
    assert run(calls, (1, message(BARRIER)), (0, message(BARRIER))) == []
    assert calls.roll.missing(1) == [2]
    assert run(calls, (2, message(BARRIER))) == ["decide 1"]
    assert (calls.decided, calls.pending()) == (1, None)


@pytest.mark.parametrize("root", [0, 1, 2])
def test_a_broadcast_gives_the_roots_value(root: int) -> None:
    calls = Calls([0, 1, 2])
    steps = run(
        calls,
        *(
            (rank, message(BROADCAST, root=root, value=b"v%d" % rank))
            for rank in (2, 0, 1)
        ),
    )
    assert steps == [f"decide 1 v{root}"]


def test_no_value_is_looked_at_before_everybody_is_there() -> None:
    calls = Calls([0, 1, 2])
    early = ((0, message(ALLREDUCE, value=b"a")), (1, message(ALLREDUCE, value=b"b")))
    assert run(calls, *early) == []
    last = (2, message(ALLREDUCE, value=b"c"))
    assert run(calls, last) == ["fold 1 0,1,2 last"]
    assert show(calls.folded(1, [Payload([b"abc"])], None)) == ["decide 1 abc"]


def test_calls_are_decided_in_order() -> None:
    calls = Calls([0, 1])
    steps = run(
        calls,
        (0, message(ALLREDUCE, 1, value=b"a")),
        (0, message(BARRIER, 2)),
        (1, message(ALLREDUCE, 1, value=b"b")),
        (1, message(BARRIER, 2)),
    )
    assert steps == ["fold 1 0,1 last"]
    assert calls.undecided(0)
    assert show(calls.folded(1, [Payload([b"x"])], None)) == ["decide 1 x", "decide 2"]
    assert not calls.undecided(0)


def test_the_fold_starts_with_the_operands_that_are_ready() -> None:
    calls = Calls([0, 1, 2])
    steps = run(
        calls,
        (0, message(ALLREDUCE, value=b"a")),
        (1, message(ALLREDUCE, size=9)),
        (2, message(ALLREDUCE, value=b"c")),
    )
    assert steps == ["grant 1 1", "fold 1 0"]
    assert show(calls.complete(1, 1, Payload([b"b"]))) == []
    assert show(calls.folded(1, None, None)) == ["fold 1 1,2 last"]


def test_the_lowest_ranks_error_is_everybodys() -> None:
    calls = Calls([0, 1, 2])
    steps = run(
        calls,
        (2, message(ALLREDUCE, error="of 2")),
        (1, message(ALLREDUCE, error="of 1")),
        (0, message(ALLREDUCE, value=b"a")),
    )
    assert steps == ["fail 1 of 1"]


def test_an_error_of_the_fold_decides_the_call() -> None:
    calls = Calls([0, 1, 2])
    run(
        calls,
        (0, message(ALLREDUCE, value=b"a")),
        (1, message(ALLREDUCE, size=9)),
        (2, message(ALLREDUCE, size=9)),
    )
    assert show(calls.folded(1, None, ReduceError("no"))) == ["fail 1 no"]
    assert show(calls.complete(1, 1, Payload([b"late"]))) == []
    assert show(calls.folded(1, [Payload([b"late"])], None)) == []
    assert calls._grants.held == 0


def test_a_teardown_is_the_last_call() -> None:
    calls = Calls([0, 1])
    steps = run(
        calls,
        (0, message(TEARDOWN)),
        (1, message(TEARDOWN)),
        (1, message(BARRIER, 2)),
        (0, message(BARRIER, 2)),
    )
    assert steps == ["decide 1"]
    assert show(calls.end(GroupError("late"), 1)) == []


# --- mismatches -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (message(BARRIER), message(TEARDOWN)),
        (message(ALLREDUCE, value=b"a"), message(BROADCAST)),
        (message(BROADCAST, root=1), message(BROADCAST, root=2)),
    ],
)
def test_different_calls_end_the_group(ours: Message, theirs: Message) -> None:
    calls = Calls([0, 1, 2])
    assert run(calls, (0, ours), (1, theirs)) == ["end 0 MismatchError"]
    assert calls.pending(1) is None
    assert run(calls, (2, ours)) == []


def test_a_mismatch_says_who_called_what_where() -> None:
    calls = Calls([0, 1, 2, 3, 4])
    run(calls, *((rank, message(BARRIER, site="a.py:1 f")) for rank in (0, 2)))
    run(calls, (3, message(BARRIER, site="a.py:9 g")))
    (end,) = calls.contribute(1, message(BROADCAST, root=3, site="b.py:2 h"))
    assert isinstance(end, End)
    assert isinstance(end.error, MismatchError)
    assert end.error.rank == 1
    assert str(end.error).splitlines()[1:] == [
        "  replicas 0, 2: barrier() at a.py:1 f",
        "  replica 3: barrier() at a.py:9 g",
        "  replica 1: broadcast(root=3) at b.py:2 h",
        "  replica 4: not called yet",
    ]


# --- what no replica sends --------------------------------------------------------


@pytest.mark.parametrize(
    ("arrived", "why"),
    [
        (message(BARRIER, 2), "call 2 of replica 1 is out of order"),
        (message(BARRIER, 0), "call 0 of replica 1 is out of order"),
        (message(BROADCAST, root=2), "root 2 is not in the group"),
        (message(ALLREDUCE), "replica 1 sent no payload"),
        (Message(Kind.CONTRIBUTE, operation=99, seq=1), "unknown operation 99"),
    ],
)
def test_nonsense_is_a_protocol_error(arrived: Message, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        list(Calls([0, 1]).contribute(1, arrived))


def test_an_error_of_the_group_is_no_contribution() -> None:
    arrived = message(ALLREDUCE, error="x")
    arrived.body = pack_fields(to_fields(MismatchError("x")))
    with pytest.raises(ProtocolError, match="an error of the group"):
        list(Calls([0, 1]).contribute(1, arrived))


def test_payloads_that_nobody_asked_for_are_ignored() -> None:
    calls = Calls([0, 1])
    assert show(calls.complete(1, 1, Payload([b"x"]))) == []
    assert run(calls, (0, message(BARRIER)), (1, message(BARRIER, value=b"x"))) == [
        "decide 1"
    ]


# --- endings ----------------------------------------------------------------------


def test_calls_up_to_the_end_are_still_decided() -> None:
    calls = Calls([0, 1])
    run(calls, (1, message(BARRIER, 1)), (1, message(BARRIER, 2)))
    assert show(calls.end(GroupError("it left"), 1)) == ["end 1 GroupError"]
    assert calls.pending(2) is None
    assert run(calls, (0, message(BARRIER, 1)), (0, message(BARRIER, 2))) == [
        "decide 1"
    ]
    assert not calls.undecided(0)


def test_a_later_end_changes_nothing_and_a_sooner_one_does() -> None:
    calls = Calls([0, 1])
    assert show(calls.end(GroupError("a"), 5)) == ["end 5 GroupError"]
    assert show(calls.end(GroupError("b"), 5)) == []
    assert show(calls.end(GroupError("c"), 3)) == ["end 3 GroupError"]


def test_what_was_called_last_is_known() -> None:
    calls = Calls([0, 1])
    assert (calls.roll.last(1), calls.last_call(1)) == (0, "nothing yet")
    run(calls, (1, message(BARRIER, 1, site="a.py:1")))
    assert (calls.roll.last(1), calls.last_call(1)) == (
        1,
        "barrier(), call 1 (a.py:1)",
    )
    assert calls.last_call(0) == "nothing yet"
    assert str(calls.pending()) == "barrier(), call 1"

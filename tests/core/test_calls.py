import functools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zcoll.errors import (
    EncodeError,
    GroupError,
    MismatchError,
    ProtocolError,
    ReduceError,
    to_fields,
)
from zcoll.operations import ALLREDUCE, BARRIER, BROADCAST, TEARDOWN, Operation
from zcoll.protocol import calls as calls_module
from zcoll.protocol.calls import Calls, Decide, End, FoldNext, Grant, Step
from zcoll.wire import Flag, Kind, Message, Payload, pack_fields, pack_sizes


def message(
    operation: Operation,
    seq: int = 1,
    *,
    root: int = 0,
    value: bytes = b"",
    size: int = 0,
    error: str = "",
    site: str = "",
) -> Message:
    made = Message(
        Kind.CONTRIBUTE, operation=operation.code, root=root, seq=seq, site=site
    )
    if error:
        made.flags = Flag.POISONED
        made.body = pack_fields(to_fields(EncodeError(error)))
    elif size:
        made.flags, made.body = Flag.CHUNKED, pack_sizes([size])
    elif value:
        made.payload = Payload([value])
    return made


def show(steps: Iterable[Step]) -> list[str]:
    """Steps, short enough for a table."""
    lines = []
    for step in steps:
        match step:
            case Grant(rank, seq):
                lines.append(f"grant {rank} {seq}")
            case FoldNext(seq, operands, last):
                ranks = ",".join(str(rank) for rank, _ in operands)
                lines.append(f"fold {seq} {ranks}{' last' if last else ''}")
            case Decide(call, payload, None):
                parts = [] if payload is None else payload.parts
                value = b"".join(parts).decode()
                lines.append(f"decide {call.seq} {value}".strip())
            case Decide(call, _, error):
                lines.append(f"fail {call.seq} {error.message if error else ''}")
            case End(error, after):
                lines.append(f"end {after} {type(error).__name__}")
    return lines


def run(calls: Calls, *arrivals: tuple[int, Message]) -> list[str]:
    return [
        line
        for rank, arrived in arrivals
        for line in show(calls.contribute(rank, arrived))
    ]


# --- decisions --------------------------------------------------------------------


def test_a_barrier_is_decided_when_everybody_is_there() -> None:
    calls = Calls([0, 1, 2])
    assert run(calls, (1, message(BARRIER)), (0, message(BARRIER))) == []
    assert calls.missing(1) == [2]
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
    assert show(calls.folded(1, Payload([b"abc"]), None)) == ["decide 1 abc"]


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
    assert calls.undecided
    assert show(calls.folded(1, Payload([b"x"]), None)) == ["decide 1 x", "decide 2"]
    assert not calls.undecided


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
    assert show(calls.folded(1, Payload([b"late"]), None)) == []
    assert calls._held == 0


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
        (Message(Kind.CONTRIBUTE, operation=9, seq=1), "unknown operation 9"),
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
    assert not calls.undecided


def test_a_later_end_changes_nothing_and_a_sooner_one_does() -> None:
    calls = Calls([0, 1])
    assert show(calls.end(GroupError("a"), 5)) == ["end 5 GroupError"]
    assert show(calls.end(GroupError("b"), 5)) == []
    assert show(calls.end(GroupError("c"), 3)) == ["end 3 GroupError"]


def test_what_was_called_last_is_known() -> None:
    calls = Calls([0, 1])
    assert calls.last_call(1) == (0, "")
    run(calls, (1, message(BARRIER, 1, site="a.py:1")))
    assert calls.last_call(1) == (1, "a.py:1")
    assert str(calls.pending()) == "barrier(), call 1"


# --- grants -----------------------------------------------------------------------


@pytest.fixture
def _budget_of_100(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_module, "BUDGET", 100)


@pytest.mark.usefixtures("_budget_of_100")
def test_grants_go_in_rank_order_while_there_is_room() -> None:
    calls = Calls([0, 1, 2, 3])
    arrivals = [(rank, message(ALLREDUCE, size=40)) for rank in (3, 2, 1)]
    assert run(calls, *arrivals) == []
    mine = (0, message(ALLREDUCE, value=b"a"))
    assert run(calls, mine) == ["fold 1 0", "grant 1 1", "grant 2 1"]
    assert show(calls.folded(1, None, None)) == []
    assert show(calls.complete(1, 1, Payload([b"b"]))) == ["fold 1 1"]
    assert show(calls.folded(1, None, None)) == ["grant 3 1"]


@pytest.mark.usefixtures("_budget_of_100")
def test_operands_above_the_budget_come_one_ahead_of_the_other() -> None:
    calls = Calls([0, 1, 2, 3])
    arrivals = [(rank, message(ALLREDUCE, size=500)) for rank in range(4)]
    assert run(calls, *arrivals) == ["grant 0 1", "grant 1 1"]
    assert show(calls.complete(0, 1, Payload([b"a"]))) == ["fold 1 0"]
    assert show(calls.folded(1, None, None)) == ["grant 2 1"]


@pytest.mark.usefixtures("_budget_of_100")
def test_a_later_call_never_keeps_the_first_one_waiting() -> None:
    calls = Calls([0, 1])
    steps = run(
        calls,
        (0, message(ALLREDUCE, 1, value=b"a")),
        (0, message(BROADCAST, 2, root=1)),
        (0, message(BROADCAST, 3, root=1)),
        (1, message(ALLREDUCE, 1, size=500)),
        (1, message(BROADCAST, 2, root=1, size=500)),
    )
    assert steps == ["fold 1 0", "grant 1 1"]
    assert show(calls.folded(1, None, None)) == []
    assert show(calls.complete(1, 1, Payload([b"b"]))) == ["fold 1 1 last"]
    result = calls.folded(1, Payload([b"ab"]), None)
    assert show(result) == ["decide 1 ab", "grant 1 2"]
    assert show(calls.complete(1, 2, Payload([b"c"]))) == ["decide 2 c"]
    assert calls._held == 0


def test_errors_stop_the_grants_of_their_call() -> None:
    calls = Calls([0, 1, 2])
    run(calls, (0, message(ALLREDUCE, error="no")))
    assert run(calls, (1, message(ALLREDUCE, size=40))) == []
    assert run(calls, (2, message(ALLREDUCE, size=40))) == ["fail 1 no"]


# --- any order of arrivals --------------------------------------------------------


@given(st.integers(1, 5), st.integers(1, 6), st.data())
def test_the_order_of_arrivals_makes_no_difference(
    size: int, count: int, data: st.DataObject
) -> None:
    operations = data.draw(
        st.lists(
            st.sampled_from([ALLREDUCE, BROADCAST, BARRIER]),
            min_size=count,
            max_size=count,
        )
    )
    chunked = data.draw(st.sets(st.tuples(st.integers(0, 4), st.integers(1, 6))))
    order = data.draw(st.permutations([*range(size)] * count))
    root = size - 1
    group = _FoldingGroup(Calls(list(range(size))))
    made = dict.fromkeys(range(size), 0)
    for rank in order:
        made[rank] += 1
        seq = made[rank]
        operation = operations[seq - 1]
        held = (rank, seq) in chunked and operation.contributes(rank, root)
        value = b"" if held else b"%d" % rank
        arrived = message(operation, seq, root=root, value=value, size=9 if held else 0)
        group.take(group.calls.contribute(rank, arrived))
    everybody = b"".join(b"%d" % rank for rank in range(size))
    results = {ALLREDUCE: everybody, BROADCAST: b"%d" % root, BARRIER: b""}
    assert group.results == [results[operation] for operation in operations]
    assert group.calls._held == 0


class _FoldingGroup:
    """Grants and folds at once, by joining bytes."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.results: list[bytes] = []
        self._folds: dict[int, bytes] = {}

    def take(self, steps: Iterable[Step]) -> None:
        for step in list(steps):
            if isinstance(step, Grant):
                payload = Payload([b"%d" % step.rank])
                self.take(self.calls.complete(step.rank, step.seq, payload))
            elif isinstance(step, FoldNext):
                parts = (bytes(p.parts[0]) for _, p in step.operands)
                joined = functools.reduce(bytes.__add__, parts)
                joined = self._folds.pop(step.seq, b"") + joined
                self._folds[step.seq] = joined
                result = Payload([joined]) if step.last else None
                self.take(self.calls.folded(step.seq, result, None))
            elif isinstance(step, Decide):
                assert step.call.seq == len(self.results) + 1
                payload = step.payload or Payload([])
                self.results.append(b"".join(payload.parts))

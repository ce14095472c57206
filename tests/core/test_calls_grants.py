import functools
from collections.abc import Iterable

import pytest
from core.calls_bench import message, run, show
from hypothesis import given
from hypothesis import strategies as st

from zcoll.operations import ALLREDUCE, BARRIER, BROADCAST
from zcoll.payload import Payload
from zcoll.protocol import grants as grants_module
from zcoll.protocol.calls import Calls
from zcoll.protocol.steps import Decide, FoldNext, Grant, Step

# --- grants -----------------------------------------------------------------------


@pytest.fixture
def _budget_of_100(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants_module, "BUDGET", 100)


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
    result = calls.folded(1, [Payload([b"ab"])], None)
    assert show(result) == ["decide 1 ab", "grant 1 2"]
    assert show(calls.complete(1, 2, Payload([b"c"]))) == ["decide 2 c"]
    assert calls._grants.held == 0


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
    assert group.calls._grants.held == 0


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
                joined = self._folds.pop(step.call.seq, b"") + joined
                self._folds[step.call.seq] = joined
                result = [Payload([joined])] if step.last else None
                self.take(self.calls.folded(step.call.seq, result, None))
            elif isinstance(step, Decide):
                assert step.call.seq == len(self.results) + 1
                payload = step.outcome.of(0)
                self.results.append(bytes(b"".join(payload.parts)))

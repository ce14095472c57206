import pytest

from zcoll import bundle
from zcoll.operations import (
    ALLGATHER,
    ALLREDUCE,
    ALLTOALL,
    BROADCAST,
    EXSCAN,
    GATHER,
    REDUCE,
    REDUCE_SCATTER,
    SCAN,
    SCATTER,
    Operation,
)
from zcoll.payload import EMPTY, Payload
from zcoll.protocol.outcomes import Outcome, forward, reduced

RANKS = [4, 1, 3]  # a group in an order of its own


def _values(*ranks: int) -> dict[int, Payload]:
    return {rank: Payload([b"of %d" % rank]) for rank in ranks}


def _items(*ranks: int) -> dict[int, list[Payload]]:
    return {rank: [Payload([b"%d>%d" % (rank, to)]) for to in RANKS] for rank in ranks}


def _read(payload: Payload, *, many: bool) -> object:
    if not payload.parts:
        return None
    if not many:
        return bytes(b"".join(payload.parts)).decode()
    items = bundle.split(payload)
    return [None if i is None else bytes(i.parts[0]).decode() for i in items]


def _show(operation: Operation, outcome: Outcome) -> dict[int, object]:
    many = operation.many
    return {rank: _read(outcome.of(rank), many=many) for rank in RANKS}


@pytest.mark.parametrize(
    ("operation", "there", "expected"),
    [
        (BROADCAST, [1], {4: "of 1", 1: "of 1", 3: "of 1"}),
        (GATHER, [4, 1, 3], {4: None, 1: ["of 4", "of 1", "of 3"], 3: None}),
        (GATHER, [1, 3], {4: None, 1: [None, "of 1", "of 3"], 3: None}),
        (ALLGATHER, [4, 1], {rank: ["of 4", "of 1", None] for rank in RANKS}),
        (SCATTER, [1], {4: "1>4", 1: "1>1", 3: "1>3"}),
        (
            ALLTOALL,
            [4, 3],
            {
                4: ["4>4", None, "3>4"],
                1: ["4>1", None, "3>1"],
                3: ["4>3", None, "3>3"],
            },
        ),
    ],
)
def test_what_is_forwarded(
    operation: Operation, there: list[int], expected: dict[int, object]
) -> None:
    items = _items(*there) if operation.spread else {}
    outcome = forward(operation, 1, RANKS, _values(*there), items)
    assert _show(operation, outcome) == expected


@pytest.mark.parametrize(
    ("operation", "results", "expected"),
    [
        (ALLREDUCE, [b"x"], {4: "x", 1: "x", 3: "x"}),
        (REDUCE, [b"x"], {4: None, 1: None, 3: "x"}),
        (SCAN, [b"a", b"b"], {4: "a", 1: None, 3: "b"}),
        (EXSCAN, [b"", b"b"], {4: "", 1: None, 3: "b"}),
        (REDUCE_SCATTER, [b"a", b"b", b"c"], {4: "a", 1: "b", 3: "c"}),
    ],
)
def test_what_comes_of_a_fold_without_rank_1(
    operation: Operation, results: list[bytes], expected: dict[int, object]
) -> None:
    payloads = [Payload([result]) for result in results]
    outcome = reduced(operation, 3, RANKS, [4, 3], payloads)
    assert _show(operation, outcome) == expected


def test_who_gets_nothing_gets_no_bytes() -> None:
    outcome = forward(GATHER, 3, RANKS, _values(*RANKS), {})
    assert outcome.of(4) is EMPTY
    assert outcome.of(4).nbytes == 0


def test_what_everybody_gets_is_nobodys_own_memory() -> None:
    value = Payload([b"head", bytearray(5)])
    for outcome in (
        forward(BROADCAST, 1, RANKS, {1: value}, {}),
        reduced(ALLREDUCE, 0, RANKS, RANKS, [value]),
    ):
        for part in outcome.of(4).parts:
            assert memoryview(part).readonly
        assert memoryview(outcome.of(4).parts[1]).obj is value.parts[1], "not copied"


def test_what_one_replica_gets_is_its_own_memory() -> None:
    large = bytearray(bundle.SMALL)
    outcome = forward(GATHER, 1, RANKS, {1: Payload([b"head", large])}, {})
    assert outcome.of(1).parts[1] is large

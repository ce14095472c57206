"""What goes to whom: rank 0 forwards bytes unread, and nobody gets what is not his."""

from collections.abc import Iterator

import pytest
from core.coordinator_bench import Bench, peer

from zcoll import bundle
from zcoll.operations import (
    ALLGATHER,
    ALLTOALL,
    BARRIER,
    BROADCAST,
    GATHER,
    OPERATIONS,
    SCATTER,
    TEARDOWN,
    Operation,
    Who,
)
from zcoll.payload import Payload
from zcoll.protocol.events import CoordinatorInstruction, Fold, Send
from zcoll.wire import Kind, Message, pack

SIZE, ROOT = 4, 2
HEADER = len(pack(Message(Kind.OUTCOME))[0])
# No pickle, and no JSON: whoever looks into it fails.
NOISE = b"\xff\x80zcoll"


def _value(operation: Operation, rank: int) -> bytes:
    """A replica's part; what rank r has for rank s is 10 * r + s bytes longer."""
    if not operation.spread:
        return NOISE + bytes(10 * rank)
    items = [Payload([NOISE + bytes(10 * rank + to)]) for to in range(SIZE)]
    (head,) = bundle.join(items).parts
    return bytes(head)


def _run(operation: Operation) -> list[CoordinatorInstruction]:
    bench = Bench(SIZE)
    last: list[CoordinatorInstruction] = []
    for rank in (2, 0, 3, 1):
        gives = operation.contributes(rank, ROOT)
        value = _value(operation, rank) if gives else b""
        root = ROOT if operation.rooted else 0
        last = bench.call(rank, operation, value=value, root=root)
    return last


def _sends(instructions: list[CoordinatorInstruction]) -> Iterator[tuple[int, Message]]:
    ranks = {peer(rank): rank for rank in range(SIZE)}
    for each in instructions:
        if isinstance(each, Send):
            yield ranks[each.peer], each.message


def _bytes(instructions: list[CoordinatorInstruction]) -> dict[int, int]:
    """What goes to each rank beyond a header, in bytes."""
    found = dict.fromkeys(range(SIZE), 0)
    for rank, message in _sends(instructions):
        assert message.kind is Kind.OUTCOME
        if rank == 0:  # it stays in the process
            found[rank] += 0 if message.payload is None else message.payload.nbytes
        else:
            found[rank] += sum(map(len, pack(message))) - HEADER
    return found


NOISY = len(NOISE)
WHOLE = NOISY + 10 * ROOT  # what the root's value has
LIST = 4 + SIZE * (4 + 8 + NOISY)  # a list's index, and values without their extras


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (BROADCAST, dict.fromkeys(range(SIZE), WHOLE)),
        (GATHER, {0: 0, 1: 0, ROOT: LIST + 60, 3: 0}),
        (ALLGATHER, dict.fromkeys(range(SIZE), LIST + 60)),
        (SCATTER, {rank: WHOLE + rank for rank in range(SIZE)}),
        (ALLTOALL, {rank: LIST + 60 + SIZE * rank for rank in range(SIZE)}),
        (BARRIER, dict.fromkeys(range(SIZE), 0)),
        (TEARDOWN, dict.fromkeys(range(SIZE), 0)),
    ],
    ids=lambda each: each.name if isinstance(each, Operation) else "",
)
def test_bytes_of_the_outcomes(operation: Operation, expected: dict[int, int]) -> None:
    last = _run(operation)
    assert _bytes(last) == expected
    assert sorted(rank for rank, _ in _sends(last)) == list(range(SIZE)), "one each"


@pytest.mark.parametrize(
    "operation",
    [each for each in OPERATIONS if each.folding is None and each.makes is None],
    ids=lambda each: each.name,
)
def test_what_is_forwarded_is_not_given_to_the_fold(operation: Operation) -> None:
    """The values are no pickles, and still every one arrives."""
    assert not [each for each in _run(operation) if isinstance(each, Fold)]


def test_what_is_folded_is_given_to_it_at_once() -> None:
    for operation in OPERATIONS:
        if operation.folding is not None:
            (fold,) = _run(operation)
            assert isinstance(fold, Fold)
            assert [rank for rank, _ in fold.operands] == list(range(SIZE))


def test_a_rooted_fold_gives_its_result_to_the_root_only() -> None:
    for operation in OPERATIONS:
        if operation.folding is None or operation.target is not Who.ROOT:
            continue
        bench = Bench(SIZE)
        for rank in range(SIZE):
            bench.call(rank, operation, value=NOISE, root=ROOT)
        bench.machine.folded(0, 1, [Payload([b"12345"], stable=True)], None)
        assert _bytes(bench.machine.take()) == {0: 0, 1: 0, ROOT: 5, 3: 0}

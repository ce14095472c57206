import pytest

from zcoll.errors import ProtocolError
from zcoll.operations import (
    ALLREDUCE,
    BARRIER,
    BROADCAST,
    TEARDOWN,
    Operation,
    by_code,
)

RANKS = [0, 1, 2]


@pytest.mark.parametrize(
    ("operation", "code", "contributors", "described"),
    [
        (ALLREDUCE, 1, [0, 1, 2], "allreduce()"),
        (BROADCAST, 2, [1], "broadcast(root=1)"),
        (BARRIER, 3, [], "barrier()"),
        (TEARDOWN, 4, [], "teardown()"),
    ],
    ids=str,
)
def test_the_table(
    operation: Operation, code: int, contributors: list[int], described: str
) -> None:
    assert by_code(code) is operation
    assert operation.contributors(RANKS, 1) == contributors
    assert [r for r in RANKS if operation.contributes(r, 1)] == contributors
    assert operation.describe(1) == described


def test_only_allreduce_folds_and_only_teardown_ends() -> None:
    every = [by_code(code) for code in range(1, 5)]
    assert [operation for operation in every if operation.folds] == [ALLREDUCE]
    assert [operation for operation in every if operation.ends] == [TEARDOWN]
    assert [operation for operation in every if operation.rooted] == [BROADCAST]


@pytest.mark.parametrize("code", [0, 5, 255])
def test_other_codes_are_refused(code: int) -> None:
    with pytest.raises(ProtocolError, match=f"unknown operation {code}"):
        by_code(code)

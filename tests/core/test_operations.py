from itertools import product

import pytest

from zcoll.errors import ProtocolError
from zcoll.operations import OPERATIONS, Folding, Operation, Who, by_code

RANKS = [0, 1, 2]

# What each operation needs and gives; numbers on the wire never change.
TABLE = """
 1 allreduce()             everybody -> everybody  whole
 2 broadcast(root=1)       root      -> everybody  -
 3 barrier()               nobody    -> nobody     -
 4 teardown()              nobody    -> nobody     -       ends
 5 reduce(root=1)          everybody -> root       whole
 6 gather(root=1)          everybody -> root       -       many
 7 allgather()             everybody -> everybody  -       many
 8 scatter(root=1)         root      -> each       -       spread
 9 alltoall()              everybody -> each       -       spread many
10 scan()                  everybody -> each       prefix
11 exscan()                everybody -> each       before
12 reduce_scatter()        everybody -> each       items   spread
13 split()                 everybody -> each       -       makes
14 dup()                   nobody    -> each       -       makes
15 group()                 everybody -> each       -       makes
"""


def _row(operation: Operation) -> list[str]:
    marks = [
        name for name in ("spread", "many", "ends", "makes") if getattr(operation, name)
    ]
    folding = "-" if operation.folding is None else operation.folding.value
    ends = [operation.source.value, "->", operation.target.value, folding]
    return [str(operation.code), operation.describe(1), *ends, *marks]


def test_the_table() -> None:
    rows = [line.split() for line in TABLE.strip().splitlines()]
    assert [_row(operation) for operation in OPERATIONS] == rows
    for operation in OPERATIONS:
        assert by_code(operation.code) is operation


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_who_contributes(operation: Operation) -> None:
    sources = {Who.NOBODY: [], Who.ROOT: [1], Who.EVERYBODY: RANKS}[operation.source]
    assert operation.contributors(RANKS, 1) == sources
    assert [r for r in RANKS if operation.contributes(r, 1)] == sources


def test_a_tag_is_a_part_of_the_call() -> None:
    barrier, broadcast = by_code(3), by_code(2)
    assert barrier.describe(0, "end of epoch") == "barrier(tag='end of epoch')"
    assert broadcast.describe(2, "w") == "broadcast(root=2, tag='w')"


def test_what_is_folded_is_contributed_by_everybody() -> None:
    for operation, folding in product(OPERATIONS, Folding):
        if operation.folding is folding:
            assert operation.source is Who.EVERYBODY
            assert operation.spread is (folding is Folding.ITEMS)


@pytest.mark.parametrize("code", [0, 16, 255])
def test_other_codes_are_refused(code: int) -> None:
    with pytest.raises(ProtocolError, match=f"unknown operation {code}"):
        by_code(code)

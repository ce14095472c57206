"""Values of many types, in groups of many sizes, from every root."""

from __future__ import annotations

import collections
import copy
import datetime
import fractions
import functools
import operator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from values import DTYPES, VALUES, of_dtype, same

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable

    from group import Crew

every_value = pytest.mark.parametrize("make", VALUES.values(), ids=VALUES)


@every_value
def test_broadcast_gives_the_value_of_every_root(
    crew: Crew, make: Callable[[int], Any]
) -> None:
    def task(comm: zcoll.Communicator) -> list[Any]:
        mine = make(comm.replica_rank)
        return [comm.broadcast(mine, root=root) for root in range(comm.num_replicas)]

    for received in crew.run(task):
        for root, value in enumerate(received):
            assert same(make(root), value), (root, value)


@every_value
def test_allreduce_hands_every_value_to_the_reduce_function(
    crew: Crew, make: Callable[[int], Any]
) -> None:
    sent = [make(rank) for rank in range(crew.size)]
    results = crew.run(lambda comm: comm.allreduce([make(comm.replica_rank)]))
    for result in results:
        assert same(sent, result)


@every_value
def test_the_first_value_can_be_the_result(
    crew: Crew, make: Callable[[int], Any]
) -> None:
    results = crew.run(
        lambda comm: comm.allreduce(make(comm.replica_rank), lambda one, _: one)
    )
    for result in results:
        assert same(make(0), result)


@every_value
def test_the_last_value_can_be_the_result(
    crew: Crew, make: Callable[[int], Any]
) -> None:
    results = crew.run(
        lambda comm: comm.allreduce(make(comm.replica_rank), lambda _, other: other)
    )
    for result in results:
        assert same(make(crew.size - 1), result)


SUMS: dict[str, Callable[[int], Any]] = {
    "int": lambda rank: rank,
    "big int": lambda rank: 7**500 * rank,
    "float": lambda rank: 0.1 * (rank + 1),
    "complex": lambda rank: 0.1j * (rank + 1),
    "Fraction": lambda rank: fractions.Fraction(1, rank + 1),
    "str": lambda rank: f"<{rank}>",
    "bytes": lambda rank: bytes([rank]),
    "bytearray": lambda rank: bytearray([rank]),
    "list": lambda rank: [rank, [rank]],
    "tuple": lambda rank: (rank,),
    "Counter": lambda rank: collections.Counter({rank: 1, "all": rank}),
    "deque": lambda rank: collections.deque([rank]),
    "timedelta": lambda rank: datetime.timedelta(seconds=rank),
    "0-d array": lambda rank: np.array(0.1 * rank),
    "NumPy scalar": lambda rank: np.float32(0.1 * rank),
    "empty array": lambda rank: np.empty((0, 3)),
    "Fortran order": lambda rank: np.asfortranarray(np.eye(3) * rank / 3),
    "large array": lambda rank: np.linspace(rank, 1, 300_000),
    "read-only array": lambda rank: np.broadcast_to(np.float64(rank), (3, 4)),
    "objects": lambda rank: np.array([rank, f"{rank}"], dtype=object),
    **{
        f"array of {name}": functools.partial(of_dtype, name)
        for name in DTYPES
        if np.dtype(name).kind in "?biufcm"
    },
}


@pytest.mark.parametrize("make", SUMS.values(), ids=SUMS)
def test_allreduce_adds_by_default(crew: Crew, make: Callable[[int], Any]) -> None:
    """The sum has the bits of a plain left fold with ``+=``."""
    operands = [copy.deepcopy(make(rank)) for rank in range(crew.size)]
    if isinstance(operands[0], np.ndarray):
        operands = [operand.copy(order="K") for operand in operands]
    expected = functools.reduce(operator.iadd, operands)
    for result in crew.run(lambda comm: comm.allreduce(make(comm.replica_rank))):
        assert same(expected, result)


def test_barrier_returns_nothing(crew: Crew) -> None:
    assert crew.run(lambda comm: comm.barrier()) == [None] * crew.size


def test_values_of_different_types_meet_in_one_call(trio: Crew) -> None:
    mine: tuple[Any, ...] = (1, "one", [1.0])
    results = trio.run(
        lambda comm: comm.allreduce(
            mine[comm.replica_rank], lambda one, other: (one, other)
        )
    )
    assert results == [((1, "one"), [1.0])] * 3

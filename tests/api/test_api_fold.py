"""Reduction is a left fold in rank order, whatever the order of arrival."""

from __future__ import annotations

import functools
import itertools
import operator
import random
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from group import Crew, wait_for

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable


def rotation(rank: int) -> np.ndarray[Any, Any]:
    angle = 1.0 + rank
    return np.array(
        [
            [np.cos(angle), -np.sin(angle), rank],
            [np.sin(angle), np.cos(angle), 1.0],
            [0.1, 0.2, 1.0],
        ]
    )


FOLDS: dict[str, tuple[Callable[[int], Any], Callable[[Any, Any], Any]]] = {
    "neither commutes nor associates": (str, lambda a, b: f"({a} {b})"),
    "subtraction": (lambda rank: 2**rank, operator.sub),
    "division": (lambda rank: rank + 0.3, operator.truediv),
    "matrix product": (rotation, operator.matmul),
    "composition of functions": (
        lambda rank: lambda x: 3 * x + rank,
        lambda f, g: lambda x: g(f(x)),
    ),
    "changes its left argument": (
        lambda rank: [rank],
        lambda a, b: a.append(tuple(b)) or a,
    ),
    "changes its right argument": (lambda rank: [rank], lambda a, b: b.append(a) or b),
    "left projection": (lambda rank: {rank}, lambda a, _: a),
    "right projection": (lambda rank: {rank}, lambda _, b: b),
    "union": (lambda rank: {rank, -rank}, operator.or_),
    "maximum with its rank": (lambda rank: (-((rank - 2) ** 2), rank), max),
    "another type": (lambda rank: rank, lambda a, b: {"left": a, "right": b}),
    "nothing": (lambda rank: rank, lambda a, b: None),
}


@pytest.mark.parametrize(("make", "fold"), FOLDS.values(), ids=FOLDS)
def test_the_fold_is_the_one_of_functools(
    crew: Crew, make: Callable[[int], Any], fold: Callable[[Any, Any], Any]
) -> None:
    expected = functools.reduce(fold, [make(rank) for rank in range(crew.size)])
    results = crew.run(lambda comm: comm.allreduce(make(comm.replica_rank), fold))
    for result in results:
        if callable(expected):
            assert result(7) == expected(7)
        elif isinstance(expected, np.ndarray):
            assert result.tobytes() == expected.tobytes()
        else:
            assert result == expected


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_the_order_of_arrival_does_not_matter(
    trio: Crew, order: tuple[int, ...]
) -> None:
    called = [threading.Event() for _ in order]

    def task(comm: zcoll.Communicator) -> str:
        place = order.index(comm.replica_rank)
        if place:
            wait_for(called[place - 1])
        future = comm.allreduce_async(f"{comm.replica_rank}", lambda a, b: f"({a}{b})")
        called[place].set()
        return future.result(10)

    assert trio.run(task) == ["((01)2)"] * 3


def test_a_sum_has_the_same_bits_every_time(crew_of: Callable[[int], Crew]) -> None:
    """Floating-point addition does not associate, so the order shows in the bits."""
    crew = crew_of(5)
    rng = random.Random(7)
    spread = [rng.uniform(-1, 1) * 10.0**power for power in range(16)]
    numbers = [rng.sample(spread, 16) for _ in range(crew.size)]
    expected = functools.reduce(operator.add, [np.array(row) for row in numbers])
    for _ in range(5):
        results = crew.run(
            lambda comm: comm.allreduce(np.array(numbers[comm.replica_rank]))
        )
        assert {result.tobytes() for result in results} == {expected.tobytes()}


def test_the_reduce_function_of_rank_0_is_used(trio: Crew) -> None:
    def never(one: str, other: str) -> str:
        raise AssertionError("the function of another rank was called")

    results = trio.run(
        lambda comm: comm.allreduce(
            str(comm.replica_rank), operator.add if comm.replica_rank == 0 else never
        )
    )
    assert results == ["012"] * 3


def test_only_rank_0_needs_a_reduce_function_that_can_be_called(trio: Crew) -> None:
    def task(comm: zcoll.Communicator) -> int:
        if comm.replica_rank == 0:
            return comm.allreduce(2, operator.mul)
        return comm.allreduce(2)

    assert trio.run(task) == [8] * 3


def test_one_replica_alone_reduces_nothing(crew_of: Callable[[int], Crew]) -> None:
    def never(one: int, other: int) -> int:
        raise AssertionError("there is nothing to reduce")

    assert crew_of(1).run(lambda comm: comm.allreduce(5, never)) == [5]


def test_the_reduce_function_is_called_once_less_than_there_are_replicas(
    crew: Crew,
) -> None:
    calls: list[tuple[str, str]] = []

    def fold(one: str, other: str) -> str:
        calls.append((one, other))
        return one + other

    crew.run(lambda comm: comm.allreduce(str(comm.replica_rank), fold))
    assert calls == [("01234"[:rank], str(rank)) for rank in range(1, crew.size)]


def test_each_call_has_its_own_function(trio: Crew) -> None:
    def task(comm: zcoll.Communicator) -> list[int]:
        rank = comm.replica_rank
        functions: list[Callable[[int, int], int]] = [
            *(operator.add, operator.mul, max, min, operator.sub)
        ]
        futures = [comm.allreduce_async(rank + 1, function) for function in functions]
        return [future.result(10) for future in futures]

    assert trio.run(task) == [[6, 6, 3, 1, -4]] * 3


def test_a_slow_reduce_function_holds_up_only_its_own_call(trio: Crew) -> None:
    """Rank 0 is asked to fold, and others already wait in later calls."""
    folding, go_on = threading.Event(), threading.Event()

    def slow(one: int, other: int) -> int:
        folding.set()
        wait_for(go_on)
        return one + other

    def task(comm: zcoll.Communicator) -> tuple[int, str]:
        first = comm.allreduce_async(comm.replica_rank, slow)
        if comm.replica_rank == 2:
            wait_for(folding)
            go_on.set()
        return first.result(10), comm.broadcast(str(comm.replica_rank), root=2)

    assert trio.run(task) == [(3, "2")] * 3

"""The reduce functions of zcoll.ops, and those that Python and NumPy bring along."""

from __future__ import annotations

import collections
import copy
import doctest
import fractions
import functools
import math
import operator
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from group import run_group

import zcoll
from zcoll import ops

if TYPE_CHECKING:
    from collections.abc import Callable

    from group import Crew


def test_the_examples_of_the_documentation_are_right() -> None:
    found = {test.name: test for test in doctest.DocTestFinder().find(ops)}
    for function in ("mean", "concat", "merge_dicts"):
        test = found[f"zcoll.ops.{function}"]
        assert test.examples, function
        assert doctest.DocTestRunner().run(test).failed == 0, function


# --- mean -------------------------------------------------------------------------

WEIGHTS = (10, 12, 7, 0, 3.5)


def test_the_mean_of_numbers_is_weighted(crew: Crew) -> None:
    values = [0.5, -2.0, 8.0, 99.0, 1.25]
    weights = WEIGHTS[: crew.size]

    def task(comm: zcoll.Communicator) -> ops.Weighted[float]:
        rank = comm.replica_rank
        return comm.allreduce(ops.weighted(values[rank], WEIGHTS[rank]), ops.mean)

    for result in crew.run(task):
        expected = np.average(values[: crew.size], weights=weights)
        assert math.isclose(result.value, expected, rel_tol=1e-15)
        assert result.weight == sum(weights)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16"])
def test_the_mean_of_arrays_keeps_their_precision(crew: Crew, dtype: str) -> None:
    mine = [np.arange(6).reshape(2, 3).astype(dtype) + r for r in range(crew.size)]
    before = [array.copy() for array in mine]

    def task(comm: zcoll.Communicator) -> Any:
        rank = comm.replica_rank
        value = ops.weighted(mine[rank], np.int64(rank + 1))
        return comm.allreduce(value, ops.mean).value

    expected = np.average(before, axis=0, weights=range(1, crew.size + 1))
    for result in crew.run(task):
        assert result.dtype == dtype
        assert np.allclose(result, expected, rtol=float(4 * np.finfo(dtype).eps))
        assert result.flags.writeable
    assert all(map(np.array_equal, mine, before))


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i8"])
def test_the_mean_of_small_integers_does_not_overflow(trio: Crew, dtype: str) -> None:
    high = np.iinfo(dtype).max if dtype != "?" else True
    array = np.array([high, 0]).astype(dtype)

    def task(comm: zcoll.Communicator) -> Any:
        return comm.allreduce(ops.weighted(array, 1000), ops.mean).value

    for result in trio.run(task):
        assert result.dtype == np.float64
        assert np.allclose(result, [float(high), 0.0], rtol=1e-15)


def test_the_mean_of_half_precision_does_not_overflow(trio: Crew) -> None:
    largest = np.array([65504.0], np.float16)

    def task(comm: zcoll.Communicator) -> Any:
        return comm.allreduce(ops.weighted(largest, 4096), ops.mean).value

    for result in trio.run(task):
        assert result.dtype == np.float16
        assert abs(result[0] - 65504.0) <= 32  # the last digit


@pytest.mark.parametrize("nothing", [None, math.nan, "text"])
def test_what_has_no_weight_does_not_count(crew_of: Any, nothing: Any) -> None:
    def task(comm: zcoll.Communicator) -> Any:
        has_data = comm.replica_rank in (1, 3)
        mine = (2.0 * comm.replica_rank, 5) if has_data else (nothing, 0)
        return comm.allreduce(ops.weighted(*mine), ops.mean)

    assert crew_of(5).run(task) == [ops.Weighted(4.0, 10)] * 5


def test_the_mean_of_nothing_has_no_weight(trio: Crew) -> None:
    results = trio.run(lambda comm: comm.allreduce(ops.weighted(None, 0), ops.mean))
    assert results == [ops.Weighted(None, 0)] * 3


def test_a_weighted_value_is_a_value() -> None:
    one = ops.weighted("a", 2)
    assert one == ops.Weighted("a", 2)
    assert one != ops.Weighted("a", 3)
    assert one != ("a", 2)
    assert len({one, copy.copy(one), pickle.loads(pickle.dumps(one))}) == 1
    assert repr(one) == "Weighted(value='a', weight=2)"
    with pytest.raises(AttributeError):
        one.weight = 3  # type: ignore[misc]


def test_an_infinite_value_makes_an_infinite_mean(trio: Crew) -> None:
    values = (1.0, math.inf, math.inf)

    def task(comm: zcoll.Communicator) -> float:
        value = ops.weighted(values[comm.replica_rank])
        return comm.allreduce(value, ops.mean).value

    assert trio.run(task) == [math.inf] * 3


def test_fractions_and_differences_of_times_have_means() -> None:
    halves = [ops.weighted(fractions.Fraction(n, 2)) for n in (1, 2)]
    assert functools.reduce(ops.mean, halves).value == 0.75
    days = [ops.weighted(np.timedelta64(n, "h"), n) for n in (4, 12)]
    assert functools.reduce(ops.mean, days).value == np.timedelta64(10, "h")


@pytest.mark.parametrize("weight", [-1, math.nan, math.inf, "3", None, [1]])
def test_a_weight_is_a_number_from_0_up(weight: Any) -> None:
    with pytest.raises(zcoll.ConfigurationError, match="a weight must be"):
        ops.weighted(1.0, weight)


def test_a_mean_of_values_without_weights_is_everybodys_error(trio: Crew) -> None:
    errors = trio.errors(
        zcoll.ReduceError,
        lambda comm: comm.allreduce(1.5, ops.mean),  # type: ignore[arg-type]
    )
    for error in errors:
        assert "mean takes ops.weighted(value, weight), not float" in str(error)


def test_means_work_where_only_plain_data_is_taken() -> None:
    def task(comm: zcoll.Communicator) -> Any:
        value = ops.weighted(np.full(3, comm.replica_rank), 2)
        return comm.allreduce({"loss": value}, ops.merge_dicts(ops.mean))

    for result in run_group(3, task, loads=zcoll.plain_loads):
        assert result["loss"].value.tolist() == [1.0] * 3
        assert result["loss"].weight == 6


def test_a_weighted_value_is_pickled_as_it_is() -> None:
    value = ops.weighted((1.5, "x"), 3)
    assert pickle.loads(pickle.dumps(value)) == value


# --- concat -----------------------------------------------------------------------

SEQUENCES: dict[str, Callable[[int], Any]] = {
    "list": lambda rank: [rank] * rank,
    "tuple": lambda rank: (rank, str(rank)),
    "str": lambda rank: f"<{rank}>",
    "bytes": lambda rank: bytes([rank]),
    "bytearray": lambda rank: bytearray([rank]),
    "deque": lambda rank: collections.deque([rank]),
}


@pytest.mark.parametrize("make", SEQUENCES.values(), ids=SEQUENCES)
def test_sequences_are_joined_in_rank_order(
    crew: Crew, make: Callable[[int], Any]
) -> None:
    mine = [make(rank) for rank in range(crew.size)]
    results = crew.run(lambda comm: comm.allreduce(mine[comm.replica_rank], ops.concat))
    expected = functools.reduce(operator.add, [make(r) for r in range(crew.size)])
    assert results == [expected] * crew.size
    assert mine == [make(rank) for rank in range(crew.size)]


def test_arrays_are_joined_along_their_first_axis(crew: Crew) -> None:
    def task(comm: zcoll.Communicator) -> Any:
        rank = comm.replica_rank
        return comm.allreduce(np.full((rank + 1, 2), rank), ops.concat)

    expected = np.concatenate([np.full((r + 1, 2), r) for r in range(crew.size)])
    for result in crew.run(task):
        assert np.array_equal(result, expected)


@pytest.mark.parametrize("value", [1, 2.5, {1: 2}, {1}, None])
def test_what_has_no_ends_is_not_joined(value: Any) -> None:
    with pytest.raises(TypeError):
        ops.concat(value, value)


# --- merge_dicts ------------------------------------------------------------------


def test_dicts_are_merged_key_by_key(crew: Crew) -> None:
    def make(rank: int) -> dict[str, str]:
        return {f"only {rank}": "x", "all": str(rank), f"{rank % 2}": f"<{rank}>"}

    def task(comm: zcoll.Communicator) -> dict[str, str]:
        return comm.allreduce(
            make(comm.replica_rank), ops.merge_dicts(lambda a, b: a + b)
        )

    expected: dict[str, str] = {}
    for rank in range(crew.size):
        for key, value in make(rank).items():
            expected[key] = expected.get(key, "") + value
    for result in crew.run(task):
        assert list(result.items()) == list(expected.items())


def test_dicts_of_dicts_are_merged(trio: Crew) -> None:
    def task(comm: zcoll.Communicator) -> dict[str, dict[int, int]]:
        rank = comm.replica_rank
        return comm.allreduce(
            {"a": {rank: 1, 9: rank}, f"b{rank % 2}": {rank: rank}},
            ops.merge_dicts(ops.merge_dicts(max)),
        )

    expected = {"a": {0: 1, 9: 2, 1: 1, 2: 1}, "b0": {0: 0, 2: 2}, "b1": {1: 1}}
    assert trio.run(task) == [expected] * 3


def test_the_kind_of_the_first_dict_is_kept(trio: Crew) -> None:
    def task(comm: zcoll.Communicator) -> Any:
        mine = collections.Counter({comm.replica_rank: 1, "all": 1})
        return comm.allreduce(mine, ops.merge_dicts(operator.add))

    for result in trio.run(task):
        assert type(result) is collections.Counter
        assert result == {0: 1, 1: 1, 2: 1, "all": 3}


# --- what Python and NumPy bring along --------------------------------------------

BUILT_IN: dict[str, tuple[Callable[..., Any], Callable[[int], Any]]] = {
    "max": (max, lambda rank: (-1) ** rank * rank),
    "min": (min, lambda rank: f"{(rank * 3) % 5}"),
    "operator.or_ of sets": (operator.or_, lambda rank: {rank, -rank}),
    "operator.or_ of dicts": (operator.or_, lambda rank: {rank: rank, "last": rank}),
    "operator.and_": (operator.and_, lambda rank: rank % 2 == 0),
    "operator.mul": (operator.mul, lambda rank: rank + 2),
    "operator.matmul": (operator.matmul, lambda rank: np.array([[1, rank], [1, 1]])),
    "np.maximum": (np.maximum, lambda rank: np.array([rank, -rank])),
    "np.add": (np.add, lambda rank: np.full(3, 0.1 * rank)),
    "np.logical_or": (np.logical_or, lambda rank: np.array([False, rank == 1])),
    "np.hypot of numbers": (np.hypot, float),
    "a lambda": (lambda a, b: f"({a}{b})", str),
    "a partial": (functools.partial(max, key=abs), lambda rank: (-1) ** rank * rank),
    "a method": (str.__add__, str),
    "a class": (complex, lambda rank: float(rank > 0)),
}


@pytest.mark.parametrize(("fn", "make"), BUILT_IN.values(), ids=BUILT_IN)
def test_any_function_of_two_values_reduces(
    crew: Crew, fn: Callable[..., Any], make: Callable[[int], Any]
) -> None:
    expected = functools.reduce(fn, [make(rank) for rank in range(crew.size)])
    for result in crew.run(lambda comm: comm.allreduce(make(comm.replica_rank), fn)):
        assert type(result).__name__ == type(expected).__name__
        assert np.array_equal(result, expected)

"""Every collective, in groups of 1 to 5, from every root, called in every way.

What must come out is said by the model in plain Python, which mpi4py confirms
(see test_api_programs).
"""

from __future__ import annotations

import operator
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from group import Crew
from programs import model
from programs.styles import STYLES, Planned, asynchronous, blocking, roots
from values import MEBI, VALUES, same

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable

    Style = Callable[[zcoll.Communicator, list[Planned]], list[Any]]

every_style = pytest.mark.parametrize(
    "style", STYLES, ids=[style.__name__ for style in STYLES]
)
FORWARDING = [name for name in model.OPERATIONS if name not in model.FOLDING]


def check(crew: Crew, style: Style, calls: list[Planned]) -> None:
    for rank, got in enumerate(crew.run(lambda comm: style(comm, calls))):
        assert len(got) == len(calls)
        for call, result in zip(calls, got, strict=True):
            expected = call.expected()[rank]
            text = f"{call.operation} from root {call.root}, rank {rank}"
            assert same(expected, result), f"{text}: {result!r}, not {expected!r}"


# --- values that are forwarded ----------------------------------------------------


@every_style
@pytest.mark.parametrize("operation", FORWARDING)
def test_values_of_every_type_arrive_where_they_should(
    crew: Crew, operation: str, style: Style
) -> None:
    small = [make for name, make in VALUES.items() if "MiB" not in name]
    everywhere = roots(operation, crew.size)
    check(
        crew,
        style,
        [
            Planned(operation, crew.size, make, root=root)
            for number, make in enumerate(small)
            # In larger groups each value has one root, to save time.
            for root in (everywhere if crew.size < 4 else [number % len(everywhere)])
        ],
    )


@every_style
@pytest.mark.parametrize("operation", FORWARDING)
def test_large_values_arrive_where_they_should(
    crew_of: Callable[[int], Crew], operation: str, style: Style
) -> None:
    def large(number: int) -> Any:
        return {"number": number, "array": np.full(MEBI // 4 + number, number, "f4")}

    crew = crew_of(3)
    check(
        crew, style, [Planned(operation, 3, large, root=r) for r in roots(operation, 3)]
    )


# --- values that are folded -------------------------------------------------------


def _in_place(a: list[Any], b: list[Any]) -> list[Any]:
    a.append(tuple(b))
    return a


def _also_the_right(a: list[Any], b: list[Any]) -> list[Any]:
    b.append(a)
    return b


# None of these commutes, and only the first three associate.
FOLDS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[int], Any]]] = {
    "concatenation": (operator.add, lambda number: f"<{number}>"),
    "matrix product": (
        operator.matmul,
        lambda number: np.array([[1, number], [1, number % 2]]),
    ),
    "right projection": (lambda a, b: b, lambda number: [number]),
    "brackets": (lambda a, b: f"({a} {b})", str),
    "division": (operator.truediv, lambda number: number + 0.3),
    "changes its left argument": (_in_place, lambda number: [number]),
    "changes its right argument": (_also_the_right, lambda number: [number]),
    "another type": (lambda a, b: {"left": a, "right": b}, lambda number: number),
    "large arrays": (
        lambda a, b: a * 2 + b,
        lambda number: np.arange(20_000.0) + number,
    ),
}


@every_style
@pytest.mark.parametrize("operation", sorted(model.FOLDING))
def test_folds_are_left_folds_in_rank_order(
    crew: Crew, operation: str, style: Style
) -> None:
    check(
        crew,
        style,
        [
            Planned(operation, crew.size, make, fold, root)
            for fold, make in FOLDS.values()
            for root in roots(operation, crew.size)
        ],
    )


@pytest.mark.parametrize("operation", sorted(model.FOLDING))
def test_values_are_added_by_default(crew: Crew, operation: str) -> None:
    def task(comm: zcoll.Communicator) -> Any:
        mine: Any = [f"{comm.replica_rank}", "."]
        if operation in model.LISTING:
            mine = [mine] * comm.num_replicas
        return getattr(comm, operation)(mine)

    call = model.Collective(
        crew.size,
        {
            rank: [[f"{rank}", "."]] * crew.size
            if operation in model.LISTING
            else [f"{rank}", "."]
            for rank in range(crew.size)
        },
    )
    expected = model.results(operation, call)
    assert crew.run(task) == [expected[rank] for rank in range(crew.size)]


# --- whose value it is ------------------------------------------------------------


@pytest.mark.parametrize("operation", [n for n in model.OPERATIONS if n != "barrier"])
def test_results_are_new_and_values_are_not_changed(crew: Crew, operation: str) -> None:
    """Not even rank 0's, and a value may be changed once an _async call returns."""

    def task(comm: zcoll.Communicator) -> tuple[Any, list[Any]]:
        rank, size = comm.replica_rank, comm.num_replicas
        planned = Planned(operation, size, lambda n: np.full(9000, n))
        mine = planned.value_of(rank)
        arrays = mine if operation in model.LISTING else [mine]
        ones = [array.copy() for array in arrays]
        positional, named = model.arguments(
            operation, mine, root=0, fold=operator.iadd, rank=rank
        )
        first = getattr(comm, operation)(*positional, **named)
        assert all(map(np.array_equal, ones, arrays))
        future = getattr(comm, f"{operation}_async")(*positional, **named)
        for array in arrays:
            array.fill(-1)
        second = future.result(20)
        results = _arrays(first) + _arrays(second)
        for result in results:
            assert result.flags.writeable
            assert not any(np.shares_memory(result, array) for array in arrays)
            others = [other for other in results if other is not result]
            assert not any(np.shares_memory(result, other) for other in others)
        return first, second

    expected = Planned(operation, crew.size, lambda n: np.full(9000, n), operator.add)
    for rank, (first, second) in enumerate(crew.run(task)):
        assert same(expected.expected()[rank], first)
        assert same(expected.expected()[rank], second)


def _arrays(result: Any) -> list[Any]:
    if isinstance(result, list):
        return result
    return [] if result is None else [result]


class Traveller:
    """Writes down in which thread it is unpickled."""

    seen: list[str] = []  # noqa: RUF012 - what all of them have seen

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> Any:
        return _arrive, (self.name,)


def _arrive(name: str) -> Traveller:
    Traveller.seen.append(f"{name} at {threading.current_thread().name}")
    return Traveller(name)


@pytest.mark.parametrize("style", [blocking, asynchronous])
@pytest.mark.parametrize(
    ("operation", "where"),
    [
        ("broadcast", ["2 at replica-0", "2 at replica-1", "2 at replica-2"]),
        ("gather", ["0 at replica-2", "1 at replica-2", "2 at replica-2"]),
        ("scatter", ["6 at replica-0", "7 at replica-1", "8 at replica-2"]),
        (
            "alltoall",
            [f"{3 * n + r} at replica-{r}" for n in range(3) for r in range(3)],
        ),
    ],
)
def test_what_is_only_forwarded_is_unpickled_where_it_goes(
    trio: Crew, style: Style, operation: str, where: list[str]
) -> None:
    """Rank 0 forwards it unread, and nobody gets what is for somebody else."""
    Traveller.seen.clear()
    call = Planned(operation, 3, lambda number: Traveller(str(number)), root=2)
    trio.run(lambda comm: style(comm, [call]))
    assert sorted(Traveller.seen) == sorted(where)


# --- what is wrong ----------------------------------------------------------------


@every_style
@pytest.mark.parametrize("wrong", [0, 2])
@pytest.mark.parametrize("length", [0, 2, 4])
@pytest.mark.parametrize("operation", sorted(model.LISTING))
def test_lists_of_a_wrong_length_are_everybodys_error(
    trio: Crew, operation: str, wrong: int, length: int, style: Style
) -> None:
    class Wrong(Planned):
        def value_of(self, rank: int) -> Any:
            return list(range(length)) if rank == wrong else super().value_of(rank)

    call = Wrong(operation, 3, lambda number: number, root=wrong)
    errors = trio.errors(zcoll.CollectiveError, lambda comm: style(comm, [call]))
    for error in errors:
        assert type(error) is zcoll.CollectiveError
        assert error.rank == wrong
        assert error.op == operation
        assert f"{length}" in str(error)
        assert "3" in str(error)
    check(trio, style, [Planned(operation, 3, str)])  # the group goes on


@pytest.mark.parametrize("value", [None, 5])
@pytest.mark.parametrize("operation", sorted(model.LISTING))
def test_a_value_that_is_no_list_is_everybodys_error(
    trio: Crew, operation: str, value: Any
) -> None:
    class Wrong(Planned):
        def value_of(self, rank: int) -> Any:
            return value if rank == 1 else super().value_of(rank)

    call = Wrong(operation, 3, lambda number: number, root=1)
    errors = trio.errors(zcoll.CollectiveError, lambda comm: blocking(comm, [call]))
    assert [error.rank for error in errors] == [1] * 3
    check(trio, blocking, [Planned(operation, 3, str)])


@pytest.mark.parametrize("root", [-1, 3, True, 1.0, None, "0"])
@pytest.mark.parametrize("operation", sorted(model.ROOTED))
def test_a_root_is_a_rank(trio: Crew, operation: str, root: Any) -> None:
    """It is refused before the call is made, so it need not be so everywhere."""

    def task(comm: zcoll.Communicator) -> Any:
        if comm.replica_rank == 1:
            for method in operation, f"{operation}_async":
                with pytest.raises(zcoll.ConfigurationError, match="root"):
                    getattr(comm, method)([1, 2, 3], root=root)
        return comm.allgather(comm.replica_rank)

    assert trio.run(task) == [[0, 1, 2]] * 3


@every_style
def test_none_can_be_broadcast_from_every_root(crew: Crew, style: Style) -> None:
    check(
        crew,
        style,
        [
            Planned("broadcast", crew.size, lambda number: None, root=root)
            for root in range(crew.size)
        ],
    )


@pytest.mark.parametrize("operation", model.OPERATIONS)
def test_different_operations_are_a_mismatch(operation: str) -> None:
    other = "barrier" if operation != "barrier" else "allgather"
    with Crew(3) as crew:

        def task(comm: zcoll.Communicator) -> object:
            wrong = comm.replica_rank == 1
            call = Planned(other if wrong else operation, 3, str)
            return blocking(comm, [call])

        errors = crew.errors(zcoll.MismatchError, task)
    assert len({str(error) for error in errors}) == 1
    assert operation in str(errors[0])
    assert other in str(errors[0])


@pytest.mark.parametrize("operation", model.OPERATIONS)
def test_different_tags_are_a_mismatch(operation: str) -> None:
    with Crew(3) as crew:

        def task(comm: zcoll.Communicator) -> object:
            tag = "left" if comm.replica_rank == 2 else "right"
            return Planned(operation, 3, str).make(comm, operation, tag=tag)

        errors = crew.errors(zcoll.MismatchError, task)
    assert len({str(error) for error in errors}) == 1
    assert "left" in str(errors[0])
    assert "right" in str(errors[0])

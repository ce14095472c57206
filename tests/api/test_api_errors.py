"""Errors of one call: everybody gets the same one, and the group lives on."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from group import LIMIT

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from group import Crew


class NoPickle:
    """Cannot be pickled, and says why."""

    def __reduce__(self) -> tuple[Any, ...]:
        raise RuntimeError("this one stays at home")


def refuse(*_: object) -> None:
    """Stand in for an object that cannot be rebuilt."""
    raise LookupError("nobody can read this")


class NoUnpickle:
    """Can be pickled, but not unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return refuse, ()


HERE = threading.local()


def picky() -> str:
    """Stand in for an object that not every replica can rebuild."""
    if getattr(HERE, "refuses", False):
        raise LookupError("not on this replica")
    return "rebuilt"


class Picky:
    """Cannot be unpickled in threads that set ``HERE.refuses``."""

    def __reduce__(self) -> tuple[Any, ...]:
        return picky, ()


@pytest.fixture(autouse=True)
def _alive(trio: Crew) -> Any:
    """After each test, the group that had the error works on."""
    yield
    values = trio.run(
        lambda comm: (comm.allreduce([comm.replica_rank]), comm.broadcast(1))
    )
    assert values == [([0, 1, 2], 1)] * 3


def one_text(errors: list[Any]) -> str:
    """Check that all replicas have the same error, and return its text."""
    texts = {str(error) for error in errors}
    assert len(texts) == 1, texts
    assert len({(error.op, error.seq, error.rank) for error in errors}) == 1
    return texts.pop()


UNPICKLABLE: dict[str, Callable[[], Any]] = {
    "raises": NoPickle,
    "lock": threading.Lock,
    "generator": lambda: (number for number in range(3)),
    "deep inside": lambda: {"a": [np.zeros(300_000), (NoPickle(),)]},
}


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("make", UNPICKLABLE.values(), ids=UNPICKLABLE)
def test_a_value_that_cannot_be_pickled_is_everybodys_error(
    trio: Crew, make: Callable[[], Any], rank: int
) -> None:
    errors = trio.errors(
        zcoll.EncodeError,
        lambda comm: comm.allreduce(make() if comm.replica_rank == rank else 1),
    )
    text = one_text(errors)
    assert errors[0].rank == rank
    assert errors[0].op == "allreduce"
    assert f"replica {rank}" in text


def test_the_traceback_of_the_replica_that_failed_reaches_all(trio: Crew) -> None:
    errors = trio.errors(
        zcoll.EncodeError,
        lambda comm: comm.allreduce(NoPickle() if comm.replica_rank == 1 else 1),
    )
    for error in errors:
        assert "this one stays at home" in error.remote_traceback
        assert "__reduce__" in error.remote_traceback
    assert "this one stays at home" in one_text(errors)
    assert __file__ in one_text(errors)


def test_several_values_that_cannot_be_pickled_are_one_error(trio: Crew) -> None:
    one_text(trio.errors(zcoll.EncodeError, lambda comm: comm.allreduce(NoPickle())))


def test_an_async_call_gives_a_future_with_the_error(trio: Crew) -> None:
    def task(comm: zcoll.Communicator) -> int:
        value = NoPickle() if comm.replica_rank == 1 else 1
        before = comm.allreduce_async(1)
        failing: Future[Any] = comm.allreduce_async(value)
        after: Future[int] = comm.allreduce_async(2)
        assert after.result(LIMIT) == 6
        assert isinstance(failing.exception(LIMIT), zcoll.EncodeError)
        with pytest.raises(zcoll.EncodeError):
            failing.result(LIMIT)
        return before.result(LIMIT)

    assert trio.run(task) == [3, 3, 3]


@pytest.mark.parametrize("root", [0, 1, 2])
def test_a_root_that_cannot_pickle_its_value_fails_for_all(
    trio: Crew, root: int
) -> None:
    errors = trio.errors(
        zcoll.EncodeError, lambda comm: comm.broadcast(NoPickle(), root=root)
    )
    one_text(errors)
    assert errors[0].rank == root


@pytest.mark.parametrize("root", [0, 1, 2])
def test_only_the_root_must_be_able_to_pickle_its_value(trio: Crew, root: int) -> None:
    results = trio.run(
        lambda comm: comm.broadcast(
            "text" if comm.replica_rank == root else NoPickle(), root=root
        )
    )
    assert results == ["text"] * 3


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_an_operand_that_cannot_be_unpickled_is_everybodys_error(
    trio: Crew, rank: int
) -> None:
    errors = trio.errors(
        zcoll.DecodeError,
        lambda comm: comm.allreduce(NoUnpickle() if comm.replica_rank == rank else 1),
    )
    text = one_text(errors)
    assert f"replica {rank}" in text  # who sent it
    assert "nobody can read this" in text


def test_a_result_that_one_replica_cannot_unpickle_is_its_own_error(
    trio: Crew,
) -> None:
    def task(comm: zcoll.Communicator) -> str:
        HERE.refuses = comm.replica_rank == 1
        try:
            if comm.replica_rank != 1:
                return str(comm.broadcast(Picky()))
            with pytest.raises(zcoll.DecodeError, match="not on this replica"):
                comm.broadcast(Picky())
        finally:
            HERE.refuses = False
        return "its own error"

    assert trio.run(task) == ["rebuilt", "its own error", "rebuilt"]


def test_a_future_can_hold_a_result_that_cannot_be_unpickled(trio: Crew) -> None:
    def task(comm: zcoll.Communicator) -> int:
        future = comm.allreduce_async([NoUnpickle()], lambda one, _: one)
        with pytest.raises(zcoll.DecodeError):
            future.result(LIMIT)
        return comm.allreduce(1)

    assert trio.run(task) == [3, 3, 3]


def fold_that_fails(one: int, other: int) -> int:
    """Divide by zero."""
    return one // (other - other)


def test_a_reduce_function_that_raises_is_everybodys_error(trio: Crew) -> None:
    errors = trio.errors(
        zcoll.ReduceError, lambda comm: comm.allreduce(1, fold_that_fails)
    )
    text = one_text(errors)
    for error in errors:
        assert "ZeroDivisionError" in error.remote_traceback
        assert "fold_that_fails" in error.remote_traceback
    assert "ZeroDivisionError" in text
    assert "allreduce" in text


def test_the_default_function_can_fail_as_well(trio: Crew) -> None:
    errors = trio.errors(zcoll.ReduceError, lambda comm: comm.allreduce(object()))
    assert "TypeError" in one_text(errors)


def test_arrays_that_do_not_fit_are_everybodys_error(trio: Crew) -> None:
    errors = trio.errors(
        zcoll.ReduceError,
        lambda comm: comm.allreduce(np.zeros(200_000 + comm.replica_rank)),
    )
    assert "shape" in one_text(errors)


@pytest.mark.parametrize("exit_kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_reduce_function_cannot_end_the_process(
    trio: Crew, exit_kind: type[BaseException]
) -> None:
    def leave(one: int, other: int) -> int:
        raise exit_kind("out of here")

    one_text(trio.errors(zcoll.ReduceError, lambda comm: comm.allreduce(1, leave)))


def test_a_result_that_cannot_be_pickled_is_everybodys_error(trio: Crew) -> None:
    errors = trio.errors(
        zcoll.EncodeError,
        lambda comm: comm.allreduce(object(), lambda one, other: NoPickle()),
    )
    assert "stays at home" in one_text(errors)


def test_calls_around_a_failing_one_succeed(trio: Crew) -> None:
    def task(comm: zcoll.Communicator) -> None:
        futures: list[Future[Any]] = [
            comm.allreduce_async(1, fold_that_fails if step % 3 == 1 else max)
            for step in range(9)
        ]
        for step, future in enumerate(futures):
            if step % 3 == 1:
                assert isinstance(future.exception(LIMIT), zcoll.ReduceError)
            else:
                assert future.result(LIMIT) == 1

    trio.run(task)


def test_the_error_says_where_the_call_was_made(trio: Crew) -> None:
    errors = trio.errors(
        zcoll.ReduceError, lambda comm: comm.allreduce(1, fold_that_fails)
    )
    assert "test_api_errors.py:" in errors[0].site
    assert errors[0].seq > 0


@pytest.mark.parametrize("root", [-1, 3, 100])
def test_a_root_out_of_range_is_refused_before_anything_is_sent(
    trio: Crew, root: int
) -> None:
    errors = trio.errors(
        zcoll.ConfigurationError, lambda comm: comm.broadcast(1, root=root)
    )
    for error in errors:
        assert str(root) in str(error)


def test_deep_structures_are_an_error_or_a_result(trio: Crew) -> None:
    def task(comm: zcoll.Communicator) -> bool:
        deep: list[Any] = []
        for _ in range(50_000):
            deep = [deep]
        with pytest.raises(zcoll.EncodeError):
            comm.allreduce(deep)
        return True

    assert trio.run(task) == [True] * 3

"""Reduce functions that travel: from groups in which rank 0 makes no calls."""

from __future__ import annotations

import asyncio
import functools
import operator
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from group import LIMIT, Crew, wait_for

import zcoll
from zcoll.engine.functions import LIMIT as MOST

if TYPE_CHECKING:
    from collections.abc import Callable


def too_large() -> Callable[[Any, Any], Any]:
    weights = np.random.default_rng(1).bytes(MOST)
    return lambda a, b: a + b + len(weights)


def with_a_lock() -> Callable[[Any, Any], Any]:
    lock = threading.Lock()

    def locked(a: Any, b: Any) -> Any:
        with lock:
            return a + b

    return locked


def others(comm: zcoll.Communicator, *, asked: bool) -> zcoll.Communicator | None:
    """A group that rank 0 makes no calls in.

    Args:
        comm: The world.
        asked: Whether rank 0's process asks for its function; else it comes unasked.
    """
    if not asked:
        return comm.split("others" if comm.replica_rank else None)
    group = comm.dup()
    if comm.replica_rank == 0:
        group.leave()
        return None
    while group.active_ranks[0] == 0:
        group.barrier(timeout=LIMIT)
    return group


both_ways = pytest.mark.parametrize("asked", [False, True], ids=["unasked", "asked"])


class Strange:
    """A function whose name cannot be asked for."""

    def __call__(self, a: Any, b: Any) -> Any:
        return a + b

    def __getattr__(self, name: str) -> Any:
        if name == "__qualname__":
            raise RuntimeError("no name")
        raise AttributeError(name)


@both_ways
@pytest.mark.parametrize(
    ("reduce_fn", "expected"),
    [
        (max, 2),
        (operator.or_, 3),
        (np.subtract, -1),
        (lambda a, b: [a, b], [1, 2]),
        (Strange(), 3),
    ],
    ids=["builtin", "operator", "ufunc", "lambda", "strange object"],
)
def test_any_function_travels(
    trio: Crew, asked: bool, reduce_fn: Callable[[Any, Any], Any], expected: Any
) -> None:
    def task(comm: zcoll.Communicator) -> Any:
        group = others(comm, asked=asked)
        if group is None:
            return None
        return group.allreduce(comm.replica_rank, reduce_fn, timeout=LIMIT)

    assert trio.run(task) == [None, expected, expected]
    again = trio.run(lambda comm: comm.allreduce(comm.replica_rank, Strange()))
    assert again == [3] * 3


@both_ways
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (with_a_lock, "with_a_lock.<locals>.locked cannot be pickled"),
        (too_large, f"bytes when pickled, and at most {MOST} may travel"),
    ],
)
def test_what_cannot_travel_is_everybodys_error_and_the_group_goes_on(
    trio: Crew,
    asked: bool,
    make: Callable[[], Callable[[Any, Any], Any]],
    why: str,
) -> None:
    def task(comm: zcoll.Communicator) -> Any:
        group = others(comm, asked=asked)
        if group is None:
            return None
        futures = [group.allreduce_async(1, make()) for _ in range(2)]
        for future in futures:
            error = future.exception(LIMIT)
            assert isinstance(error, zcoll.EncodeError)
            assert why in str(error)
            assert (error.rank, error.group) == (1, group.name)
        return group.allreduce(1, lambda a, b: a + b, timeout=LIMIT)

    assert trio.run(task) == [None, 2, 2]


@both_ways
def test_loads_of_rank_0_may_refuse_functions(asked: bool) -> None:
    def task(comm: zcoll.Communicator) -> Any:
        group = others(comm, asked=asked)
        if group is None:
            return None
        with pytest.raises(zcoll.DecodeError, match="unpickled at rank 0") as caught:
            group.allreduce([1], lambda a, b: a + b, timeout=LIMIT)
        assert "not plain data" in str(caught.value)
        assert caught.value.rank == 1
        # The default one is known there: nothing needs to be unpickled.
        return group.allreduce([comm.replica_rank], timeout=LIMIT)

    with Crew(3, loads=zcoll.plain_loads) as crew:
        assert crew.run(task) == [None, [1, 2], [1, 2]]
        assert crew.run(lambda comm: comm.allreduce(2, lambda a, b: a * b)) == [8] * 3


def test_a_function_that_is_none_where_it_arrives_is_a_reduce_error(trio: Crew) -> None:
    class Fades:
        def __call__(self, a: Any, b: Any) -> Any:
            return a + b

        def __reduce__(self) -> Any:
            return int, (3,)

    def task(comm: zcoll.Communicator) -> Any:
        group = others(comm, asked=False)
        if group is None:
            return None
        with pytest.raises(zcoll.ReduceError, match="not callable"):
            group.allreduce(1, Fades(), timeout=LIMIT)
        return group.allreduce(1, timeout=LIMIT)

    assert trio.run(task) == [None, 2, 2]


def test_a_slow_callback_does_not_hold_up_a_function_that_is_asked_for(
    trio: Crew,
) -> None:
    go_on = threading.Event()

    def task(comm: zcoll.Communicator) -> Any:
        group = others(comm, asked=True)
        if group is None:
            return None
        busy = threading.Event()

        def callback(_: object) -> None:
            busy.set()
            wait_for(go_on)

        group.barrier_async().add_done_callback(callback)
        wait_for(busy)
        total = group.allreduce(1, lambda a, b: a + b, timeout=LIMIT)
        group.barrier(timeout=LIMIT)
        go_on.set()
        return total

    assert trio.run(task) == [None, 2, 2]


def test_nothing_blocks_an_event_loop_whose_function_is_asked_for() -> None:
    pickled_on: list[str] = []

    class Slow:
        def __call__(self, a: int, b: int) -> int:
            return a + b

        def __reduce__(self) -> Any:
            pickled_on.append(threading.current_thread().name)
            wait_for(turning)
            return functools.partial, (operator.add,)

    turning = threading.Event()
    most = 3

    async def awaiting(group: zcoll.Communicator) -> list[int]:
        loop = asyncio.get_running_loop()
        futures = [group.allreduce_async(n, Slow()) for n in range(most)]
        with pytest.raises(zcoll.BacklogError):
            group.allreduce_async(0, Slow())
        loop.call_soon(turning.set)  # the loop turns although the function is not there
        return [await future for future in futures]

    def task(comm: zcoll.Communicator) -> Any:
        group = others(comm, asked=True)
        if group is None:
            return None
        if comm.replica_rank == 1:
            return asyncio.run(awaiting(group))
        return [group.allreduce(n, timeout=LIMIT) for n in range(most)]

    with Crew(3, max_pending=most) as crew:
        assert crew.run(task) == [None, [0, 2, 4], [0, 2, 4]]
    assert set(pickled_on) == {"zcoll-functions"}

"""Inside a reduce function or a callback, a call that waits is an error."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from group import LIMIT, run_group, wait_for

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from group import Crew

CALLS: dict[str, Callable[[zcoll.Communicator], Any]] = {
    "allreduce": lambda comm: comm.allreduce(1),
    "broadcast": lambda comm: comm.broadcast(1),
    "barrier": lambda comm: comm.barrier(),
    "waiting for a future": lambda comm: comm.allreduce_async(1).result(),
}
BLOCKING = {name: call for name, call in CALLS.items() if "future" not in name}
every_call = pytest.mark.parametrize("call", BLOCKING.values(), ids=BLOCKING)


@every_call
def test_a_blocking_call_inside_a_reduce_function_raises(
    crew_of: Callable[[int], Crew], call: Callable[[zcoll.Communicator], Any]
) -> None:
    refused: list[Exception] = []
    crew = crew_of(3)

    def task(comm: zcoll.Communicator) -> int:
        def fold(one: int, other: int) -> int:
            try:
                call(comm)
            except Exception as error:
                refused.append(error)
                raise
            return one + other

        with pytest.raises(zcoll.ReduceError, match="reduce function"):
            comm.allreduce(1, fold)
        return comm.allreduce(1)

    assert crew.run(task) == [3, 3, 3]
    assert refused
    assert all(isinstance(error, RuntimeError) for error in refused)


@every_call
def test_a_reduce_function_may_catch_that(
    crew_of: Callable[[int], Crew], call: Callable[[zcoll.Communicator], Any]
) -> None:
    def task(comm: zcoll.Communicator) -> int:
        def fold(one: int, other: int) -> int:
            with pytest.raises(RuntimeError):
                call(comm)
            return one + other

        return comm.allreduce(1, fold)

    assert crew_of(3).run(task) == [3, 3, 3]


@every_call
def test_a_blocking_call_inside_a_callback_raises(
    crew: Crew, call: Callable[[zcoll.Communicator], Any]
) -> None:
    def task(comm: zcoll.Communicator) -> int:
        called = threading.Event()
        refused: list[Exception] = []

        def callback(future: Future[int]) -> None:
            try:
                call(comm)
            except RuntimeError as error:
                refused.append(error)
            finally:
                called.set()

        comm.allreduce_async(1).add_done_callback(callback)
        wait_for(called)
        assert len(refused) == 1
        assert "callback" in str(refused[0])
        return comm.allreduce(1)

    # A future that is done already calls back at once, in the caller's thread.
    sizes = [crew.size] * crew.size
    assert crew.run(task) == sizes


def test_a_blocking_call_of_another_group_is_refused_as_well(
    crew_of: Callable[[int], Crew],
) -> None:
    """The other group may need this very thread."""

    def task(comm: zcoll.Communicator) -> int:
        with zcoll.connect(replica_rank=0, num_replicas=1) as alone:

            def fold(one: int, other: int) -> int:
                with pytest.raises(RuntimeError):
                    alone.barrier()
                return one + other

            return comm.allreduce(1, fold)

    assert crew_of(3).run(task) == [3, 3, 3]


def test_teardown_inside_a_reduce_function_raises() -> None:
    def task(comm: zcoll.Communicator) -> int:
        def fold(one: int, other: int) -> int:
            with pytest.raises(RuntimeError):
                comm.teardown()
            return one + other

        return comm.allreduce(1, fold) + comm.allreduce(1)

    assert run_group(2, task) == [4, 4]


def test_a_future_of_an_earlier_call_may_be_asked_inside_a_reduce_function(
    crew_of: Callable[[int], Crew],
) -> None:
    """What is done already does not wait."""

    def task(comm: zcoll.Communicator) -> int:
        earlier: Future[int] = comm.allreduce_async(1)
        assert earlier.result(LIMIT) == 3
        return comm.allreduce(1, lambda one, other: one + other + earlier.result())

    assert crew_of(3).run(task) == [9, 9, 9]


def test_one_replica_alone_may_drop_a_group_in_the_middle_of_a_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the garbage collector does, which may run anywhere."""
    with zcoll.connect(replica_rank=0, num_replicas=1) as comm:
        groups = [comm.dup()]
        coordinator = comm._engine._coordinator  # type: ignore[union-attr]
        take = coordinator.take

        def interrupted() -> Any:
            groups.clear()
            return take()

        monkeypatch.setattr(coordinator, "take", interrupted)
        assert comm.allreduce(1, timeout=5) == 1
        assert not groups
        comm.barrier()
        assert len(coordinator.decisions.groups) == 1

"""Replicas that make different calls: refused everywhere, with one text."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from group import LIMIT, Crew, wait_for

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future


def by_allreduce(comm: zcoll.Communicator) -> Any:
    return comm.allreduce(1)


def by_async(comm: zcoll.Communicator) -> Any:
    return comm.allreduce_async(1).result(LIMIT)


def by_broadcast(comm: zcoll.Communicator) -> Any:
    return comm.broadcast(1)


def by_other_root(comm: zcoll.Communicator) -> Any:
    return comm.broadcast(1, root=2)


def by_barrier(comm: zcoll.Communicator) -> Any:
    return comm.barrier()


def by_teardown(comm: zcoll.Communicator) -> Any:
    return comm.teardown()


PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[str, ...]]] = {
    "operation": (by_allreduce, by_barrier, ("allreduce", "barrier")),
    "async operation": (by_async, by_broadcast, ("allreduce", "broadcast")),
    "root": (by_broadcast, by_other_root, ("broadcast", "root=0", "root=2")),
    "count": (by_allreduce, by_teardown, ("allreduce", "teardown")),
}
every_pair = pytest.mark.parametrize(
    ("common", "odd", "words"), PAIRS.values(), ids=PAIRS
)


@every_pair
@pytest.mark.parametrize("odd_one", [0, 1, 2])
def test_a_mismatch_is_the_same_error_everywhere(
    common: Callable[..., Any],
    odd: Callable[..., Any],
    words: tuple[str, ...],
    odd_one: int,
) -> None:
    def task(comm: zcoll.Communicator) -> str:
        assert comm.allreduce(1) == 3  # what came before was right
        call = odd if comm.replica_rank == odd_one else common
        with pytest.raises(zcoll.MismatchError) as caught:
            call(comm)
        return str(caught.value)

    with Crew(3) as crew:
        texts = set(crew.run(task))
    assert len(texts) == 1, texts
    text = texts.pop()
    for word in words:
        assert word in text
    # Both sides' places in the code are told.
    for function in common, odd:
        assert f"test_api_mismatch.py:{function.__code__.co_firstlineno + 1}" in text


@every_pair
def test_after_a_mismatch_every_call_fails_at_once(
    common: Callable[..., Any], odd: Callable[..., Any], words: tuple[str, ...]
) -> None:
    def task(comm: zcoll.Communicator) -> None:
        call = odd if comm.replica_rank == 1 else common
        with pytest.raises(zcoll.MismatchError) as first:
            call(comm)
        if call is by_teardown:
            return
        begin = time.monotonic()
        for later in by_allreduce, by_broadcast, by_barrier, by_async:
            with pytest.raises(zcoll.MismatchError) as again:
                later(comm)
            assert str(again.value) == str(first.value)
        comm.teardown()  # never blocks, and is no error
        assert time.monotonic() - begin < 5

    with Crew(3) as crew:
        crew.run(task)


def test_calls_before_the_mismatch_are_still_delivered() -> None:
    def task(comm: zcoll.Communicator) -> None:
        before: list[Future[int]] = [comm.allreduce_async(step) for step in range(5)]
        comm.barrier()
        with pytest.raises(zcoll.MismatchError):
            (by_barrier if comm.replica_rank == 2 else by_broadcast)(comm)
        for step, future in enumerate(before):
            assert future.result(LIMIT) == 3 * step

    with Crew(3) as crew:
        crew.run(task)


def test_a_fold_that_is_under_way_is_finished() -> None:
    """Everybody had made that call before anybody made another one."""
    told = threading.Event()

    def slow(one: int, other: int) -> int:
        wait_for(told)
        return one + other

    def task(comm: zcoll.Communicator) -> None:
        before: list[Future[int]] = [
            comm.allreduce_async(1, slow),
            comm.allreduce_async(2),
        ]
        with pytest.raises(zcoll.MismatchError):
            (by_barrier if comm.replica_rank == 1 else by_broadcast)(comm)
        told.set()
        assert [future.result(LIMIT) for future in before] == [2, 4]

    with Crew(2) as crew:
        crew.run(task)


def test_calls_in_flight_behind_the_mismatch_fail_with_its_text() -> None:
    def task(comm: zcoll.Communicator) -> None:
        first: Future[Any] = comm.allreduce_async(1)
        comm.barrier()
        if comm.replica_rank == 1:
            with pytest.raises(zcoll.MismatchError):
                comm.barrier()
            with pytest.raises(zcoll.MismatchError):
                comm.barrier()
            assert first.result(LIMIT) == 2
            return
        behind: list[Future[Any]] = [comm.allreduce_async(step) for step in range(3)]
        texts = {str(future.exception(LIMIT)) for future in behind}
        assert len(texts) == 1
        assert all(
            isinstance(future.exception(0), zcoll.MismatchError) for future in behind
        )
        assert first.result(LIMIT) == 2

    with Crew(2) as crew:
        crew.run(task)


def test_nobody_gets_a_value_from_a_call_that_does_not_match() -> None:
    """The root's value is there long before the mismatch is."""
    root_has_called = threading.Event()

    def task(comm: zcoll.Communicator) -> None:
        if comm.replica_rank == 2:
            wait_for(root_has_called)
            with pytest.raises(zcoll.MismatchError):
                comm.barrier()
            return
        future: Future[str] = comm.allreduce_async("value")
        if comm.replica_rank == 0:
            root_has_called.set()
        assert isinstance(future.exception(LIMIT), zcoll.MismatchError)

    with Crew(3) as crew:
        crew.run(task)


def test_a_mismatch_found_early_does_not_wait_for_the_late() -> None:
    """Two replicas disagree; the third need not come for them to learn it."""
    known = threading.Event()

    def task(comm: zcoll.Communicator) -> None:
        if comm.replica_rank == 2:
            wait_for(known)
            with pytest.raises(zcoll.MismatchError):
                comm.allreduce(1)
            return
        with pytest.raises(zcoll.MismatchError):
            (by_barrier if comm.replica_rank else by_allreduce)(comm)
        if comm.replica_rank == 0:
            known.set()

    with Crew(3) as crew:
        crew.run(task)


def test_different_reduce_functions_are_no_mismatch(trio: Crew) -> None:
    functions = (max, min, None)

    def task(comm: zcoll.Communicator) -> int:
        function = functions[comm.replica_rank]
        if function is None:
            return comm.allreduce(comm.replica_rank)
        return comm.allreduce(comm.replica_rank, function)

    assert trio.run(task) == [2, 2, 2]


def test_blocking_and_async_calls_match(trio: Crew) -> None:
    def task(comm: zcoll.Communicator) -> Any:
        return (by_async if comm.replica_rank == 1 else by_allreduce)(comm)

    assert trio.run(task) == [3, 3, 3]


@pytest.mark.parametrize("leaver", [0, 1, 2])
def test_a_replica_that_fails_is_named_with_its_reason(leaver: int) -> None:
    """Leaving the ``with`` block by an exception is no teardown."""

    def task(comm: zcoll.Communicator) -> None:
        pending: Future[int] = comm.allreduce_async(1)
        if comm.replica_rank == leaver:
            with pytest.raises(KeyError), comm:
                raise KeyError("the reason")
            return
        # What it had called is still delivered.
        assert pending.result(LIMIT) == 3
        with pytest.raises(zcoll.ReplicaExitedError) as caught:
            comm.allreduce(2)
        error = caught.value
        assert error.rank == leaver
        assert "KeyError" in error.reason
        assert "the reason" in error.reason
        assert f"replica {leaver}" in str(error)
        with pytest.raises(zcoll.ReplicaExitedError) as again:
            comm.barrier()
        assert str(again.value) == str(error)

    with Crew(3) as crew:
        crew.run(task)


def test_a_group_can_be_made_again_after_a_mismatch() -> None:
    def fail(comm: zcoll.Communicator) -> None:
        with pytest.raises(zcoll.MismatchError):
            (by_barrier if comm.replica_rank else by_allreduce)(comm)
        comm.teardown()

    def task(comm: zcoll.Communicator) -> list[int]:
        results = []
        fail(comm)
        for _ in range(3):
            with zcoll.connect(
                "127.0.0.1", crew.port, comm.replica_rank, 2, timeout=LIMIT
            ) as again:
                results.append(again.allreduce(1))
                fail(again)
        return results

    with Crew(2) as crew:
        assert crew.run(task) == [[2, 2, 2]] * 2

"""Futures: in any order, with callbacks, awaited, and never cancelled."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import queue
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
from group import LIMIT

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from group import Crew


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_results_can_be_collected_in_any_order(
    crew: Crew, order: tuple[int, ...]
) -> None:
    def task(comm: zcoll.Communicator) -> None:
        futures = [comm.allreduce_async(10**power) for power in range(3)]
        for place in order:
            assert futures[place].result(LIMIT) == comm.num_replicas * 10**place

    crew.run(task)


def test_replicas_may_collect_in_different_orders(crew: Crew) -> None:
    def task(comm: zcoll.Communicator) -> None:
        futures = [comm.allreduce_async([step]) for step in range(20)]
        turn = comm.replica_rank * 3 % 20
        for step in [*range(turn, 20), *range(turn)]:
            assert futures[step].result(LIMIT) == [step] * comm.num_replicas

    crew.run(task)


def test_hundreds_of_calls_can_be_in_flight(trio: Crew) -> None:
    def task(comm: zcoll.Communicator) -> None:
        futures: list[Future[tuple[int, ...]]] = [
            comm.allreduce_async((step, comm.replica_rank)) for step in range(500)
        ]
        assert comm.broadcast("after them") == "after them"
        for step, future in reversed(list(enumerate(futures))):
            assert future.result(LIMIT) == (step, 0, step, 1, step, 2)

    trio.run(task)


def test_blocking_calls_overtake_no_async_call(crew: Crew) -> None:
    def task(comm: zcoll.Communicator) -> None:
        first = comm.allreduce_async(np.full(100_000, 1))
        assert comm.allreduce(2) == 2 * comm.num_replicas
        last = comm.allreduce_async(3)
        comm.barrier()
        assert last.result(LIMIT) == 3 * comm.num_replicas
        assert (first.result(LIMIT) == comm.num_replicas).all()

    crew.run(task)


def test_what_is_never_collected_does_no_harm(crew: Crew) -> None:
    def task(comm: zcoll.Communicator) -> int:
        for _ in range(10):
            comm.allreduce_async(np.ones(50_000))
        return comm.allreduce(1)

    assert crew.run(task) == [crew.size] * crew.size


def test_it_is_a_future_of_concurrent_futures(crew: Crew) -> None:
    def task(comm: zcoll.Communicator) -> None:
        futures: list[Future[int]] = [comm.allreduce_async(step) for step in range(4)]
        assert all(isinstance(one, concurrent.futures.Future) for one in futures)
        done, pending = concurrent.futures.wait(futures, timeout=LIMIT)
        assert not pending
        assert all(future.done() and not future.running() for future in done)
        results = {
            future.result()
            for future in concurrent.futures.as_completed(futures, timeout=LIMIT)
        }
        assert results == {step * comm.num_replicas for step in range(4)}
        assert futures[0].exception() is None

    crew.run(task)


def test_waiting_has_a_limit(trio: Crew) -> None:
    others_gave_up = threading.Barrier(3, timeout=LIMIT)

    def task(comm: zcoll.Communicator) -> int:
        if comm.replica_rank == 1:
            others_gave_up.wait()
            return comm.allreduce(1)
        future: Future[int] = comm.allreduce_async(1)
        with pytest.raises(concurrent.futures.TimeoutError):
            future.result(timeout=0.05)
        with pytest.raises(concurrent.futures.TimeoutError):
            future.exception(timeout=0.05)
        assert not future.done()
        done, pending = concurrent.futures.wait([future], timeout=0.05)
        assert (done, pending) == (set(), {future})
        others_gave_up.wait()
        return future.result(LIMIT)

    assert trio.run(task) == [3, 3, 3]


def test_one_replica_cannot_take_a_call_back(trio: Crew) -> None:
    all_tried = threading.Barrier(3, timeout=LIMIT)

    def task(comm: zcoll.Communicator) -> int:
        if comm.replica_rank == 2:
            all_tried.wait()
        future: Future[int] = comm.allreduce_async(1)
        if comm.replica_rank != 2:
            assert future.cancel() is False
            all_tried.wait()
        result = future.result(LIMIT)
        assert future.cancel() is False
        assert not future.cancelled()
        return result

    assert trio.run(task) == [3, 3, 3]


def test_callbacks_are_called_with_the_future(crew: Crew) -> None:
    def task(comm: zcoll.Communicator) -> None:
        seen: queue.SimpleQueue[Future[int]] = queue.SimpleQueue()
        future: Future[int] = comm.allreduce_async(1)
        future.add_done_callback(seen.put)
        assert seen.get(timeout=LIMIT) is future  # though nobody asks for the result
        assert future.result(0) == comm.num_replicas
        future.add_done_callback(seen.put)  # when it is done already
        assert seen.get(timeout=LIMIT) is future

    crew.run(task)


def test_a_callback_that_raises_harms_nobody(
    crew: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    def callback(future: Future[int]) -> None:
        raise ValueError("from a callback")

    def task(comm: zcoll.Communicator) -> int:
        future: Future[int] = comm.allreduce_async(1)
        future.add_done_callback(callback)
        return future.result(LIMIT) + comm.allreduce(1)

    assert crew.run(task) == [2 * crew.size] * crew.size


def test_a_slow_callback_holds_up_nobody_else(trio: Crew) -> None:
    others_went_on = threading.Barrier(3, timeout=LIMIT)

    def task(comm: zcoll.Communicator) -> int:
        future: Future[int] = comm.allreduce_async(1)
        if comm.replica_rank == 1:
            future.add_done_callback(lambda _: others_went_on.wait())
            return future.result(LIMIT)
        result = future.result(LIMIT)
        others_went_on.wait()
        return result

    assert trio.run(task) == [3, 3, 3]


def test_callbacks_may_begin_calls(crew: Crew) -> None:
    """A call that waits is an error there, but an async one is not."""

    def task(comm: zcoll.Communicator) -> int:
        chained: Future[Future[int]] = concurrent.futures.Future()

        def callback(future: Future[int]) -> None:
            chained.set_result(comm.allreduce_async(future.result()))

        comm.allreduce_async(1).add_done_callback(callback)
        return chained.result(LIMIT).result(LIMIT)

    assert crew.run(task) == [crew.size**2] * crew.size


def test_futures_can_be_awaited(crew: Crew) -> None:
    def task(comm: zcoll.Communicator) -> None:
        async def main() -> None:
            assert await comm.allreduce_async(1) == comm.num_replicas
            futures = [comm.allreduce_async([step]) for step in range(5)]
            wrapped = asyncio.wrap_future(futures[0])
            for step in 4, 0, 2, 3, 1:
                assert await futures[step] == [step] * comm.num_replicas
            assert await wrapped == [0] * comm.num_replicas
            assert await futures[2] == [2] * comm.num_replicas  # a second time

        asyncio.run(main())

    crew.run(task)


def test_awaiting_does_not_stop_the_event_loop(trio: Crew) -> None:
    others_wait = threading.Barrier(3, timeout=LIMIT)

    def task(comm: zcoll.Communicator) -> int:
        if comm.replica_rank == 1:
            others_wait.wait()
            return comm.allreduce(1)

        async def main() -> int:
            future: Future[int] = comm.allreduce_async(1)
            waiting = asyncio.ensure_future(_result(future))
            await asyncio.sleep(0.01)
            assert not waiting.done()
            # The loop runs on, or the call would never be complete.
            await asyncio.get_running_loop().run_in_executor(None, others_wait.wait)
            return await asyncio.wait_for(waiting, LIMIT)

        return asyncio.run(main())

    assert trio.run(task) == [3, 3, 3]


async def _result(future: Future[int]) -> int:
    result: int = await future  # type: ignore[misc]
    return result


def test_awaited_errors_are_raised(trio: Crew) -> None:
    def fold(one: int, other: int) -> int:
        raise ValueError("no sum")

    def task(comm: zcoll.Communicator) -> int:
        async def main() -> None:
            with pytest.raises(zcoll.ReduceError, match="no sum"):
                await comm.allreduce_async(1, fold)

        asyncio.run(main())
        return comm.allreduce(1)

    assert trio.run(task) == [3, 3, 3]


def test_several_threads_share_a_communicator(
    crew_of: Callable[[int], Crew],
) -> None:
    """One thread begins the calls, others collect what comes of them."""

    def task(comm: zcoll.Communicator) -> None:
        futures: list[Future[int]] = [comm.allreduce_async(step) for step in range(50)]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda future: future.result(LIMIT), futures))
        assert results == [step * comm.num_replicas for step in range(50)]

    crew_of(4).run(task)

"""Every collective on event loops: they go on, and a cancelled wait loses nothing."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from group import LIMIT
from programs import model
from programs.styles import Planned

import zcoll

if TYPE_CHECKING:
    from group import Crew

every_operation = pytest.mark.parametrize("operation", model.OPERATIONS)


async def _result(future: zcoll.Future[Any]) -> Any:
    return await future


@every_operation
def test_a_cancelled_wait_cancels_nothing_and_everybody_stays_in_step(
    trio: Crew, operation: str
) -> None:
    given_up = threading.Barrier(3)
    call = Planned(operation, 3, str)

    def task(comm: zcoll.Communicator) -> tuple[Any, Any, Any]:
        async def main() -> tuple[Any, Any, Any]:
            future = call.make(comm, f"{operation}_async")
            waiting = asyncio.ensure_future(_result(future))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(_result(future), 0.001)
            assert not future.cancelled()
            given_up.wait(LIMIT)
            later = call.make(comm, f"{operation}_async")
            return await later, await future, await later

        if comm.replica_rank != 1:  # whose part is missing while the others wait
            return asyncio.run(main())
        given_up.wait(LIMIT)
        results = [call.make(comm, operation, timeout=LIMIT) for _ in range(2)]
        return results[1], results[0], results[1]

    expected = call.expected()
    assert trio.run(task) == [(expected[rank],) * 3 for rank in range(3)]


@every_operation
def test_the_loop_goes_on_while_it_waits(trio: Crew, operation: str) -> None:
    turned = threading.Barrier(3)
    call = Planned(operation, 3, str)

    def task(comm: zcoll.Communicator) -> Any:
        async def main() -> Any:
            waiting = asyncio.ensure_future(
                _result(call.make(comm, f"{operation}_async"))
            )
            for _ in range(100):  # turns of the loop, which nothing keeps from turning
                await asyncio.sleep(0)
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, turned.wait, LIMIT)
            return await asyncio.wait_for(waiting, LIMIT)

        if comm.replica_rank:
            return asyncio.run(main())
        turned.wait(LIMIT)  # only now the call can end
        return call.make(comm, operation, timeout=LIMIT)

    expected = call.expected()
    assert trio.run(task) == [expected[rank] for rank in range(3)]


def test_one_future_can_be_awaited_on_several_loops(trio: Crew) -> None:
    def task(comm: zcoll.Communicator) -> list[list[int]]:
        future = comm.allgather_async(comm.replica_rank)
        return [asyncio.run(_result(future)) for _ in range(3)]

    assert trio.run(task) == [[[0, 1, 2]] * 3] * 3


def test_many_tasks_of_one_loop_may_each_have_a_group(trio: Crew) -> None:
    """Each task makes its calls one after the other; tasks overtake each other."""
    tasks, calls = 5, 20

    def task(comm: zcoll.Communicator) -> list[list[str]]:
        groups = [comm.dup() for _ in range(tasks)]

        async def work(number: int) -> list[str]:
            return [
                await groups[number].allreduce_async(f"{number}.{turn} ")
                for turn in range(calls)
            ]

        async def main() -> list[list[str]]:
            # Another order on each replica: no order is common to all groups.
            order = [(number + comm.replica_rank) % tasks for number in range(tasks)]
            found = await asyncio.gather(*map(work, order))
            return [sums for _, sums in sorted(zip(order, found, strict=True))]

        return asyncio.run(asyncio.wait_for(main(), LIMIT))

    expected = [[f"{n}.{turn} " * 3 for turn in range(calls)] for n in range(tasks)]
    assert trio.run(task) == [expected] * 3

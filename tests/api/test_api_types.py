"""The types that checkers infer: mypy checks them (tools/check), and the calls work."""

from __future__ import annotations

import asyncio
import operator
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

import zcoll
from zcoll import ops

if sys.version_info >= (3, 11):
    from typing import assert_type
else:
    from typing_extensions import assert_type

if TYPE_CHECKING:
    from group import Crew


def blocking(comm: zcoll.Communicator) -> None:
    one = [1.5] * comm.num_replicas
    nothing: list[str] | None = None
    assert_type(comm.allreduce(1), int)
    assert_type(comm.allreduce([1, 2]), list[int])
    assert_type(comm.reduce("text", root=0), str | None)
    assert_type(comm.broadcast({"lr": 0.1}), dict[str, float])
    assert_type(comm.gather(1, root=0), list[int] | None)
    assert_type(comm.allgather("text"), list[str])
    assert_type(comm.scatter(one), float)
    texts = ["a"] * comm.num_replicas if comm.replica_rank == 0 else nothing
    assert_type(comm.scatter(texts), str)
    assert_type(comm.alltoall(tuple(one)), list[float])
    assert_type(comm.scan(1), int)
    assert_type(comm.exscan(1), int | None)
    assert_type(comm.reduce_scatter(one), float)
    comm.barrier()


def asynchronous(comm: zcoll.Communicator) -> None:
    one = [1.5] * comm.num_replicas
    assert_type(comm.allreduce_async(1), zcoll.Future[int])
    assert_type(comm.reduce_async("text"), "zcoll.Future[str | None]")
    assert_type(comm.broadcast_async(b"bytes"), zcoll.Future[bytes])
    assert_type(comm.gather_async(1), "zcoll.Future[list[int] | None]")
    assert_type(comm.allgather_async(1), zcoll.Future[list[int]])
    assert_type(comm.scatter_async(one), zcoll.Future[float])
    assert_type(comm.alltoall_async(one), zcoll.Future[list[float]])
    assert_type(comm.scan_async(1), zcoll.Future[int])
    assert_type(comm.exscan_async(1), "zcoll.Future[int | None]")
    assert_type(comm.reduce_scatter_async(one), zcoll.Future[float])
    assert_type(comm.barrier_async(), "zcoll.Future[None]")
    assert_type(comm.allreduce_async(1).result(), int)


async def awaited(comm: zcoll.Communicator) -> None:
    assert_type(await comm.allreduce_async(1), int)
    assert_type(await comm.gather_async(1), list[int] | None)


def functions(comm: zcoll.Communicator) -> None:
    """Reduce functions of many kinds are taken, and the value's type stays."""
    assert_type(comm.allreduce(1, max), int)
    assert_type(comm.allreduce({1}, operator.or_), set[int])
    assert_type(comm.allreduce(2.5, lambda a, b: a * b), float)
    assert_type(comm.allreduce((1, "a"), min), tuple[int, str])
    array: np.ndarray[Any, np.dtype[np.float64]] = np.zeros(3)
    assert_type(
        comm.allreduce(array, np.maximum), np.ndarray[Any, np.dtype[np.float64]]
    )
    assert_type(comm.allreduce([1], ops.concat), list[int])
    assert_type(comm.allreduce({"a": 1}, ops.merge_dicts(max)), dict[str, int])
    counted = comm.allreduce(Counter("text"), ops.merge_dicts(operator.add))
    assert_type(counted, Counter[str])
    assert_type(comm.allreduce(ops.weighted(3, 2), ops.mean).value, float)
    assert_type(
        comm.allreduce(ops.weighted(array, 2), ops.mean).value,
        np.ndarray[Any, np.dtype[np.float64]],
    )


def groups(comm: zcoll.Communicator) -> None:
    assert_type(comm.split("color", key=1), zcoll.Communicator | None)
    assert_type(comm.dup(), zcoll.Communicator)
    assert_type(comm.group([0]), zcoll.Communicator | None)
    assert_type(comm.active_ranks, list[int])
    assert_type(comm.name, str)


def test_calls_give_the_types_that_checkers_infer(trio: Crew) -> None:
    """That the calls work; the types are mypy's to check."""
    for task in blocking, asynchronous, functions, groups:
        trio.run(task)
    trio.run(lambda comm: asyncio.run(awaited(comm)))

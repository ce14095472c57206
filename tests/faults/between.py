"""Groups whose replicas reach rank 0 through a proxy, and the calls that they make."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Any

import numpy as np
from faults.harm import NONE
from faults.proxy import Proxy
from group import SECRET, Crew
from ports import tcp_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from faults.harm import Fault

    import zcoll

# What is right must not depend on how busy the machine is.
PATIENT = {"reconnect_window": 20.0}


@contextlib.contextmanager
def proxied(
    size: int, faults: Callable[[int], Fault] = lambda _: NONE, **options: Any
) -> Iterator[tuple[Proxy, Crew]]:
    """Make a group, all of whose connections go through one proxy."""
    port = tcp_port()
    options = {"secret": SECRET, **PATIENT, **options}
    with Proxy(port, faults) as proxy:
        ports = [port] + [proxy.port] * (size - 1)
        with Crew(size, ports=ports, **options) as crew:
            yield proxy, crew


def only_first(fault: Fault) -> Callable[[int], Fault]:
    """Harm the first connection, and no other."""
    return lambda index: NONE if index else fault


def call_often(crew: Crew, calls: int) -> None:
    """Make calls whose results show who was counted, and how often."""

    def task(comm: zcoll.Communicator) -> list[list[tuple[int, int]]]:
        rank = comm.replica_rank
        return [comm.allreduce([(rank, step)]) for step in range(calls)]

    expected = [[(rank, step) for rank in range(crew.size)] for step in range(calls)]
    assert crew.run(task) == [expected] * crew.size


def add_arrays(comm: zcoll.Communicator, nbytes: int) -> bool:
    """Add arrays no two bytes of which are alike, and tell whether it is right."""
    count = nbytes // 8
    rank, size = comm.replica_rank, comm.num_replicas
    result = comm.allreduce(np.arange(count, dtype=np.float64) * (rank + 1))
    expected = np.arange(count, dtype=np.float64) * (size * (size + 1) // 2)
    return bool((result == expected).all())


def mix_calls(comm: zcoll.Communicator, calls: int, seed: int) -> list[int]:
    """Make calls of all sizes, many in flight at a time; list those that are wrong."""
    choose = random.Random(seed)  # the same choices on every replica
    rank, size = comm.replica_rank, comm.num_replicas
    pending: list[tuple[int, int, Future[Any]]] = []
    wrong = []
    for step in range(calls):
        count = choose.choice([1, 1, 1, 100, 10_000, 100_000, 400_000])
        future = comm.allreduce_async(np.full(count, float(step * size + rank)))
        pending.append((step, count, future))
        while len(pending) > choose.randrange(1, 12):
            number, length, oldest = pending.pop(0)
            result = oldest.result(60)
            expected = size * size * number + sum(range(size))
            if len(result) != length or not (result == expected).all():
                wrong.append(number)
    for number, length, future in reversed(pending):
        result = future.result(60)
        expected = size * size * number + sum(range(size))
        if len(result) != length or not (result == expected).all():
            wrong.append(number)
    return wrong

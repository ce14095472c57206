"""What puppets do with many threads on one communicator."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 60.0  # seconds for one call


def call_from_threads(threads: int, calls: int) -> list[str]:
    """Call from many threads; a lock keeps the order, and results show it."""
    ranks = range(zcoll.num_replicas())
    lock = threading.Lock()
    numbers = itertools.count()
    errors: list[str] = []

    def work() -> None:
        for _ in range(calls):
            with lock:
                number = next(numbers)
                future = zcoll.allreduce_async([(zcoll.replica_rank(), number)])
            result = future.result(LIMIT)
            if result != [(rank, number) for rank in ranks]:
                errors.append(f"call {number}: {result}")

    _run(work, threads)
    return errors


def call_alike_from_threads(threads: int, calls: int) -> list[str]:
    """Block in the same call from many threads, in no order."""
    size = zcoll.num_replicas()
    errors: list[str] = []

    def work() -> None:
        for _ in range(calls):
            result = zcoll.allreduce(1)
            if result != size:
                errors.append(f"{result}")

    _run(work, threads)
    return errors


def _run(work: Callable[[], None], count: int) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

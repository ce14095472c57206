"""Arrays of random sizes, all results checked; those that are kept, once more later.

Arguments: the number of calls, the largest size in bytes, a seed.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np
from report import report

import zcoll

KEPT = 8  # results, and what reduce functions were given
OPERATIONS = (
    "allreduce",
    "keeping",
    "first",
    "broadcast",
    "allgather",
    "scan",
    "scatter",
)


class Kept:
    """Arrays that must stay as they are, whatever comes after them."""

    def __init__(self) -> None:
        self.arrays: list[tuple[Any, Any]] = []

    def keep(self, array: Any) -> None:
        self.arrays.append((array, array.copy()))
        del self.arrays[:-KEPT]

    def check(self) -> bool:
        return all(bool((now == then).all()) for now, then in self.arrays)


def value_of(rank: int, step: int, size: int) -> Any:
    """Make what a replica contributes; everybody can make it too."""
    return np.arange(size // 8, dtype=np.float64) * (rank + 1) + step


def is_right(name: str, step: int, size: int, kept: Kept) -> bool:
    """Make a call, and compare its result with what it must be."""
    world = zcoll.world()
    rank, ranks = world.replica_rank, range(world.num_replicas)
    root = step % len(ranks)
    mine = value_of(rank, step, size)
    values = [value_of(each, step, size) for each in ranks]

    def add(a: Any, b: Any) -> Any:
        kept.keep(b)
        return a + b

    def first(a: Any, b: Any) -> Any:
        b += 1  # a reduce function may do what it likes with its operands
        return b if step % 2 else a

    if name == "allreduce":
        expected, result = sum(values), world.allreduce(mine)
    elif name == "keeping":
        expected, result = sum(values), world.allreduce(mine, add)
    elif name == "first":
        expected = values[-1] + 1 if step % 2 else values[0]
        result = world.allreduce(mine, first)
    elif name == "broadcast":
        expected, result = values[root], world.broadcast(mine, root=root)
    elif name == "allgather":
        expected = np.concatenate(values)
        result = np.concatenate(world.allgather(mine))
    elif name == "scan":
        expected, result = sum(values[: rank + 1]), world.scan(mine)
    else:
        items = values if rank == root else None
        expected, result = mine, world.scatter(items, root=root)
    same = result.shape == expected.shape and bool((result == expected).all())
    result *= 0.5  # it is the caller's own
    kept.keep(result)
    return same and bool((mine == values[rank]).all())


def main() -> None:
    calls, largest, seed = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    zcoll.initialize()
    choose = random.Random(seed)  # the same choices on every replica
    kept = Kept()
    wrong = None
    for step in range(calls):
        name, size = choose.choice(OPERATIONS), choose.randrange(largest)
        if not is_right(name, step, size, kept):
            wrong = f"call {step}, {name} of {size} bytes"
            break
        if step % 8 == 0 and not kept.check():
            wrong = f"what was kept before call {step}"
            break
    report(zcoll.replica_rank(), {"wrong": wrong, "kept": kept.check()})
    zcoll.teardown()


if __name__ == "__main__":
    main()

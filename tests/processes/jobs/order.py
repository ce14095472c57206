"""Calls whose results depend on the order of ranks and of calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from report import report

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Mine:
    """A class of ``__main__``."""

    rank: int


def main() -> None:
    zcoll.initialize()
    rank, size = zcoll.replica_rank(), zcoll.num_replicas()
    futures = [
        zcoll.allreduce_async(f"{step}{rank}", lambda a, b: f"({a}{b})")
        for step in range(30)
    ]
    objects: list[Any] = zcoll.allreduce([Mine(rank)])
    large = zcoll.allreduce(np.full((300, 1000), rank, np.int32))
    function: Callable[[int], int] = zcoll.broadcast(lambda x: x + rank, root=size - 1)
    report(
        rank,
        {
            "fold": zcoll.allreduce(str(rank), lambda a, b: f"({a}{b})"),
            "futures": [future.result(20) for future in reversed(futures)],
            "roots": [zcoll.broadcast(rank, root=root) for root in range(size)],
            "ranks of __main__.Mine": [
                one.rank for one in objects if isinstance(one, Mine)
            ],
            "large": [int(large.min()), int(large.max()), large.flags.writeable],
            "lambda": function(100),
        },
    )
    zcoll.barrier()
    zcoll.teardown()


if __name__ == "__main__":
    main()

"""Many splits, whose groups are closed, dropped or torn down: what grows by them?

By itself: ``TEST_RESULTS=/tmp zcoll run -n 2 tests/processes/jobs/splits.py 10000``
"""

from __future__ import annotations

import gc
import sys
import time
from typing import Any

import psutil
from report import report

import zcoll


def made(world: zcoll.Communicator, turn: int) -> zcoll.Communicator:
    group = world.split(turn % 3, key=-world.replica_rank)
    assert group is not None
    return group


def use(world: zcoll.Communicator, turns: int) -> None:
    """Make groups, fold in them, and let each go in one of the ways there are."""
    size = world.num_replicas
    for turn in range(turns):
        group = made(world, turn)
        assert group.allreduce(1, lambda a, b: a + b) == size
        if turn % 4 == 1:
            group.close()
        elif turn % 4 == 2:
            group.teardown()
        elif turn % 4 == 3:
            group.leave()


def look(world: zcoll.Communicator) -> dict[str, Any]:
    """What is there now; ``kept`` counts the entries of rank 0's and own tables."""
    world.barrier()  # nobody has groups any more
    gc.collect()
    engine: Any = world._engine
    process = psutil.Process()
    kept = [len(engine._replica.calling._groups), len(engine._backlogs._groups)]
    if world.replica_rank == 0:
        coordinator = engine._coordinator
        kept += [
            len(coordinator.decisions.groups),
            len(coordinator.decisions.groups._parents),
            len(coordinator.reports.reducing),
            len(engine._folder._workers),
            len(engine._folder._reductions),
        ]
    return {
        "kept": kept,
        "threads": process.num_threads(),
        "descriptors": process.num_fds(),
        "memory": process.memory_info().rss,
    }


def main() -> None:
    turns = int(sys.argv[1])
    zcoll.initialize()
    world = zcoll.world()
    use(world, 500)  # fills caches, and what else has a bound
    before, start = look(world), time.monotonic()
    use(world, turns)
    seconds = time.monotonic() - start
    after = look(world)
    grown = {name: after[name] - before[name] for name in after if name != "kept"}
    found = {"kept": [before["kept"], after["kept"]], **grown, "seconds": seconds}
    report(world.replica_rank, found)
    zcoll.teardown()


if __name__ == "__main__":
    main()

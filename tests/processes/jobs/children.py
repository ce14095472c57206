"""Children by multiprocessing are the replicas of a group; so are their parents."""

from __future__ import annotations

import multiprocessing
import sys
from typing import TYPE_CHECKING, Any

from report import report

import zcoll

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


def child(rank: int, port: int, sender: Connection) -> None:
    """Rank 1 ends with a call on its way, and rank 0 gets what it comes to."""
    zcoll.initialize("127.0.0.1", port, rank, 2)
    future = zcoll.allreduce_async([f"a{rank}"])
    if rank == 1:
        return
    found: list[Any] = [future.result(20)]
    try:
        zcoll.barrier()
    except zcoll.GroupError as error:
        found += [type(error).__name__, error.rank]
    sender.send(found)


def main() -> None:
    zcoll.initialize()
    context: Any = multiprocessing.get_context(sys.argv[1])
    port = int(sys.argv[2 + zcoll.replica_rank()])
    receiver, sender = multiprocessing.Pipe(duplex=False)
    children = [
        context.Process(target=child, args=(rank, port, sender)) for rank in (0, 1)
    ]
    for process in children:
        process.start()
    found = receiver.recv() if receiver.poll(20) else None
    for process in children:
        process.join()
    report(
        zcoll.replica_rank(),
        {
            "of the children": found,
            "exit": [process.exitcode for process in children],
            "after": zcoll.allreduce(1),
        },
    )
    zcoll.teardown()


if __name__ == "__main__":
    main()

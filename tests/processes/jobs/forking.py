"""A child of a fork: its calls raise, its end disturbs nobody."""

from __future__ import annotations

import multiprocessing
import os
import time
from typing import TYPE_CHECKING, Any

from holding import lanes
from report import report

import zcoll

LIMIT = 20.0  # seconds

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection


def try_everything(group: zcoll.Communicator) -> list[str]:
    """Name the errors of a child's calls."""
    calls: list[Callable[[], Any]] = [
        lambda: zcoll.allreduce(1),
        lambda: zcoll.broadcast(1),
        zcoll.barrier,
        lambda: zcoll.allreduce_async(1).result(5),
        lambda: zcoll.world().barrier(),
        lambda: group.allreduce(1),
        lambda: group.split(0),
        group.leave,
        group.teardown,
    ]
    errors = []
    for call in calls:
        try:
            errors.append(f"no error but {call()!r}")
        except RuntimeError as error:
            errors.append(f"{type(error).__name__}: {error}")
    group.close()  # it is not the child's, so this does nothing
    return errors


def child(sender: Connection, group: zcoll.Communicator) -> None:
    sender.send((try_everything(group), lanes()))


def wait_for_lanes(count: int) -> None:
    """Wait until memory is shared, so that a child has something to let go of."""
    deadline = time.monotonic() + LIMIT
    while lanes() < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def main() -> None:
    zcoll.initialize()
    rank = zcoll.replica_rank()
    before = zcoll.allreduce_async(1)
    group = zcoll.world().dup()
    if os.environ.get("ZCOLL_LANE") == "auto":
        wait_for_lanes(1 if rank else zcoll.num_replicas() - 1)

    receiver, sender = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("fork")
    process = context.Process(target=child, args=(sender, group))
    process.start()
    in_child, lanes_of_child = receiver.recv()
    process.join()

    pid = os.fork()
    if pid == 0:
        return  # the child ends as a program does, and never tore anything down
    _, status = os.waitpid(pid, 0)

    report(
        rank,
        {
            "in the child": in_child,
            "lanes of the child": lanes_of_child,
            "exit of the children": [process.exitcode, status],
            "in the parent": [before.result(20), zcoll.allreduce(2)],
            "in the parent's group": group.allgather(rank),
        },
    )
    zcoll.teardown()


if __name__ == "__main__":
    main()

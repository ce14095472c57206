"""Ctrl-C while rank 0 waits: it goes through at once, and nobody is out of step."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from report import report, tell, wait_for

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable


def seconds_until_interrupted(call: Callable[[], Any]) -> float:
    """Send this process a Ctrl-C while it waits; see how long that takes."""
    sent: list[float] = []

    def interrupt() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.2, interrupt)
    try:
        timer.start()
        call()
    except KeyboardInterrupt:
        return time.monotonic() - sent[0]
    raise AssertionError("the call ended without an interrupt")


def main() -> None:
    zcoll.initialize()
    rank = zcoll.replica_rank()
    group = zcoll.world().dup()
    waits: dict[str, Callable[[], Any]] = {
        "allreduce": lambda: zcoll.allreduce(np.ones(300_000)),
        "broadcast": lambda: zcoll.broadcast("value", root=1),
        "barrier": zcoll.barrier,
        "limited barrier": lambda: zcoll.barrier(timeout=60),
        "future": lambda: zcoll.allreduce_async([rank]).result(),
        "future with a limit": lambda: zcoll.allreduce_async([rank]).result(60),
        "split": lambda: zcoll.world().split(0),
        "reduce of a group": lambda: group.reduce(np.ones(300_000)),
        "gather of a group": lambda: group.gather_async([rank], root=1).result(60),
    }
    seconds = {}
    for name, call in waits.items():
        if rank == 0:
            seconds[name] = seconds_until_interrupted(call)
            tell(f"{name} was interrupted")
        else:
            wait_for(f"{name} was interrupted")
            call()  # rank 0's call is still in flight, so this one ends
    report(rank, {"seconds": seconds, "after": zcoll.allreduce([rank])})
    assert group.allreduce(1) == zcoll.num_replicas()
    zcoll.teardown()


if __name__ == "__main__":
    main()

"""A signal handler that ends the group while the main thread waits."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

from report import report, tell, wait_for

import zcoll

if TYPE_CHECKING:
    from types import FrameType


def main() -> None:
    way, struck = sys.argv[1], int(sys.argv[2])
    zcoll.initialize()
    rank = zcoll.replica_rank()

    def handler(number: int, frame: FrameType | None) -> None:
        if way == "abort":
            zcoll.abort("preempted")
        else:
            zcoll.world().close("preempted")
        tell("it has struck")

    if rank == struck:
        signal.signal(signal.SIGUSR1, handler)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    if rank == 2:
        wait_for("it has struck")
    try:
        zcoll.barrier(timeout=20)
        zcoll.barrier(timeout=20)  # what was called before a close still counts
    except zcoll.ZcollError as error:
        report(rank, [type(error).__name__, str(error)])


if __name__ == "__main__":
    main()

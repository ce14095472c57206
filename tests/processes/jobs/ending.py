"""Programs that end without a teardown, each in its own way."""

from __future__ import annotations

import signal
import sys
from typing import Any

from report import report, tell, wait_for

import zcoll


def result_or_error(call: Any) -> Any:
    """Make a call, and describe how it ended."""
    try:
        return call()
    except zcoll.ReplicaExitedError as error:
        return ["ReplicaExitedError", error.rank, error.reason, str(error)]
    except zcoll.ReplicaLostError as error:
        return ["ReplicaLostError", error.rank, "", str(error)]


def end_at_once(rank: int, leaver: int) -> None:
    """One leaves right behind its calls; the others get what these come to."""
    futures = [zcoll.allreduce_async([rank, step]) for step in range(20)]
    if rank != leaver:
        results = [future.result(20) for future in futures]
        report(rank, [results, result_or_error(lambda: zcoll.allreduce(0))])


def end_by_exit(rank: int, leaver: int) -> None:
    """Everybody leaves by ``sys.exit``, with results that nobody asks for."""
    zcoll.allreduce_async(rank)
    report(rank, zcoll.allreduce(1))
    sys.exit(0)


def end_by_exception(rank: int, leaver: int) -> None:
    """One fails, and the others are told why, in the call in which they wait."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # zcoll run ends the others
    before = zcoll.allreduce_async([rank])
    if rank == leaver:
        wait_for("others wait")
        raise RuntimeError("the disk is full")
    waiting = zcoll.allreduce_async(1)
    first = before.result(20)
    tell("others wait")
    report(
        rank,
        [
            first,
            result_or_error(lambda: waiting.result(20)),
            result_or_error(zcoll.barrier),
        ],
    )


def end_unclosed(rank: int, leaver: int) -> None:
    """A communicator of its own is never closed."""
    comm = zcoll.world()
    future = comm.allreduce_async(2)
    report(rank, [comm.allreduce(1), future.result(20)])


ENDINGS = {
    "at once": end_at_once,
    "exit": end_by_exit,
    "exception": end_by_exception,
    "unclosed": end_unclosed,
}

if __name__ == "__main__":
    zcoll.initialize()
    ENDINGS[sys.argv[1]](zcoll.replica_rank(), int(sys.argv[2]))

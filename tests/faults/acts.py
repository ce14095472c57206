"""What puppets do. Each function is one act; :func:`say` tells the test of it."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from faults.nursery import say

import zcoll
from zcoll.transport.lane.lane import Lane
from zcoll.transport.sockets import Dealer, Router

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LIMIT = 60.0  # seconds for a group to come together
CHUNK_OF_THE_FAULT = 5  # of a large array's chunks


def join(port: int, rank: int, size: int, secret: str | None, tuning: Any) -> None:
    """Come into the default group."""
    options = {"timeout": LIMIT, **tuning}
    zcoll.initialize("127.0.0.1", port, rank, size, secret=secret, **options)


def use_the_wire() -> None:
    """Let all messages pass whatever is between, though all are on one host."""
    os.environ["ZCOLL_LANE"] = "zmq"


def share_memory() -> None:
    """Let messages go through shared memory."""
    os.environ["ZCOLL_LANE"] = "auto"


def teardown() -> None:
    """Leave the group with the others."""
    zcoll.teardown()


# --- calls ------------------------------------------------------------------


def barrier() -> None:
    """Wait for the others."""
    zcoll.barrier()


def allreduce(value: Any) -> Any:
    """Add small values."""
    return zcoll.allreduce(value)


def send(value: Any) -> None:
    """Add small values, and never ask for the sum."""
    zcoll.allreduce_async(value)


def now() -> float:
    """Tell the time."""
    return time.monotonic()


def reduce_array(nbytes: int) -> None:
    """Add large arrays."""
    rank, size = zcoll.replica_rank(), zcoll.num_replicas()
    result = zcoll.allreduce(np.full(nbytes // 8, float(rank)))
    if not (result == sum(range(size))).all():
        raise AssertionError("a wrong result")


def until_lost(act: Callable[..., Any], *arguments: Any) -> None:
    """Make a call, and then others until one fails.

    A call that was decided before a replica was lost still ends well.
    """
    act(*arguments)
    while True:
        zcoll.barrier()


def announced(act: Callable[..., Any], *arguments: Any) -> Any:
    """Make a call, and tell once the program waits in it."""
    threading.Thread(target=_tell_wait, daemon=True).start()
    return act(*arguments)


def _tell_wait() -> None:
    engine = zcoll.world()._engine
    while not any(future.waiting_since for future in engine.pending(0)):
        time.sleep(0.001)
    say("waiting")


# --- time -------------------------------------------------------------------


def compute() -> None:
    """Be busy in Python until the process was stopped and goes on."""
    continued = threading.Event()
    signal.signal(signal.SIGCONT, lambda *_: continued.set())
    say("computing")
    while not continued.is_set():
        sum(range(1000))


def hold_interpreter(seconds: float) -> float:
    """Let no other thread of this process in for that long, as some C code does."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        say("holding")
        start = time.monotonic()
        while time.monotonic() - start < seconds:
            sum(range(1_000_000))
        return time.monotonic() - start
    finally:
        sys.setswitchinterval(interval)


def hold_interpreter_until_told() -> None:
    """Let no other thread in until a signal comes."""
    continued: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: continued.append(number))
    sys.setswitchinterval(1000)
    try:
        say("holding")
        while not continued:
            sum(range(1_000_000))
    finally:
        sys.setswitchinterval(0.005)


# --- faults in the middle of a message --------------------------------------


def fault_when_sending(number: int) -> None:
    """Be struck by a signal when a few chunks of an array have been sent."""
    for kind in (Dealer, Router, Lane):
        _count_chunks(kind, "send", number)


def fault_when_receiving(number: int) -> None:
    """Be struck by a signal when a few chunks of an array have arrived."""
    for kind, name in ((Dealer, "receive"), (Router, "receive"), (Lane, "take")):
        _count_chunks(kind, name, number)


def _count_chunks(
    kind: type[Dealer] | type[Router] | type[Lane], name: str, number: int
) -> None:
    method = getattr(kind, name)
    seen = 0

    @functools.wraps(method)
    def counting(self: Dealer | Router | Lane, *arguments: Any) -> Any:
        nonlocal seen
        result = None
        if name != "send":
            result = method(self)
        frames = arguments[-1] if arguments else result
        if isinstance(frames, tuple):  # the ROUTER's: with the peer
            frames = frames[1]
        if frames is not None and _carries_chunk(frames):
            seen += 1
            if seen == CHUNK_OF_THE_FAULT:
                say("struck")
                os.kill(os.getpid(), number)
        return method(self, *arguments) if name == "send" else result

    setattr(kind, name, counting)


def _carries_chunk(frames: Sequence[Any]) -> bool:
    return len(frames) > 1 and len(frames[1]) > 100_000


# --- rank 0's reduce function -----------------------------------------------


def reduce_slowly(seconds: float, hold: bool) -> list[int]:
    """Reduce with a function that takes long; or that lets no other thread in."""

    def function(a: list[int], b: list[int]) -> list[int]:
        say("reducing")
        if hold:
            hold_interpreter(seconds)
        end = time.monotonic() + seconds
        while time.monotonic() < end and not hold:
            sum(range(1000))
        return a + b

    return zcoll.allreduce([zcoll.replica_rank()], function)


# --- children ---------------------------------------------------------------


def fork_a_child() -> int:
    """Fork, as a program does for its own purposes; the child stays."""
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            while True:
                signal.pause()
        os._exit(0)
    return pid


def start_a_program() -> int:
    """Start another program that inherits what it can; it stays."""
    return subprocess.Popen(["sleep", "600"], close_fds=False).pid


# --- ends -------------------------------------------------------------------


def fail(text: str) -> None:
    """Raise."""
    raise RuntimeError(text)


def leave() -> None:
    """End the program, as programs do."""
    sys.exit(0)


def abort(reason: str) -> None:
    """End the group for everybody."""
    zcoll.abort(reason)


def fail_in_with(
    port: int, rank: int, size: int, secret: str | None, tuning: Any, text: str
) -> None:
    """Raise in a ``with`` block, after one call."""
    options = {"timeout": LIMIT, **tuning}
    with zcoll.connect("127.0.0.1", port, rank, size, secret=secret, **options) as comm:
        comm.barrier()
        raise RuntimeError(text)

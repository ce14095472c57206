"""What puppets do while a call takes long, and what they are told of it."""

from __future__ import annotations

import logging
import signal
import threading
import time
from typing import Any

from faults.nursery import say

import zcoll
from zcoll.engine import waiting

LIMIT = 60.0  # seconds for one call


class _Listener(logging.Handler):
    """Tells the test what is logged."""

    def emit(self, record: logging.LogRecord) -> None:
        say("log", (record.name, record.levelname, record.getMessage()))


def listen() -> None:
    """Tell what zcoll logs."""
    logging.getLogger("zcoll").addHandler(_Listener(logging.DEBUG))
    logging.getLogger("zcoll").setLevel(logging.DEBUG)


def tell_of_waits_after(seconds: float) -> None:
    """Have the first word about missing replicas sooner than it usually is."""
    waiting.FIRST_NEWS = seconds


def load_batch() -> None:
    """Be in user code until the process is told to go on."""
    continued = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: continued.set())
    say("loading")
    while not continued.is_set():
        time.sleep(0.01)


def limited_barrier(seconds: float) -> list[Any]:
    """Run out of time, and tell what the error says; then wait to the end."""
    try:
        zcoll.barrier(timeout=seconds)
    except zcoll.CollectiveTimeoutError as error:
        say("timed out", (error.missing, error.report, str(error)))
        return [error.future.result(LIMIT)]
    raise AssertionError("it ended in time")


def two_calls(seconds: float) -> int:
    """Make two calls; wait for the second, then for the first, which takes long."""

    def function(a: int, b: int) -> int:
        say("reducing")
        time.sleep(seconds)
        return a + b

    first = zcoll.allreduce_async(1, function)
    second: int = zcoll.allreduce(1)
    return first.result(LIMIT) + second

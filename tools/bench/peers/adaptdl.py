"""AdaptDL's reducer: pickles on raw TCP sockets, folded by a thread of rank 0."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING
from unittest import mock

from adaptdl.reducer import Reducer

from bench.cells import OUTSTANDING

if TYPE_CHECKING:
    from bench.orders import Place
    from bench.payloads import Payload
    from bench.peers.contract import Call

_RETRY = 0.01  # seconds


class AdaptDL:
    """Its ``Reducer``, unchanged.

    When rank 0 does not listen yet, it sleeps for 5 s and tries again; here it sleeps
    less, so that its start is not slower than it needs to be.
    """

    def __init__(self, rank: int, size: int, place: Place) -> None:
        patient = SimpleNamespace(sleep=lambda _: time.sleep(_RETRY))
        # It gives up after 26 attempts, and would go on without a connection.
        with mock.patch("adaptdl.reducer.time", patient):
            self._reducer = Reducer(rank, size, "127.0.0.1", place.port)

    def allreduce(self, payload: Payload) -> Call:
        """One blocking call."""
        value, reduce_fn = payload.make(), payload.reduce_fn
        return lambda: self._reducer.allreduce(value, reduce_fn)

    def broadcast(self, payload: Payload) -> Call:
        """Its broadcast is an allreduce that keeps the first value."""
        value = payload.make()
        return lambda: self._reducer.broadcast(value)

    def pipeline(self, payload: Payload) -> Call:
        """Its futures, collected in order."""
        value, reduce_fn = payload.make(), payload.reduce_fn

        def call() -> object:
            futures = [
                self._reducer.allreduce_async(value, reduce_fn)
                for _ in range(OUTSTANDING)
            ]
            return [future.result() for future in futures][-1]

        return call

    def close(self) -> None:
        """Nothing: it has no end but the process's."""

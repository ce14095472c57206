"""zcoll itself, by nothing but its API."""

from __future__ import annotations

from typing import TYPE_CHECKING

import zcoll
from bench.cells import OUTSTANDING

if TYPE_CHECKING:
    from bench.orders import Place
    from bench.payloads import Payload
    from bench.peers.contract import Call

_SECRET = "the secret of a benchmark on this host"  # noqa: S105 - it protects nothing
_LIMIT = 60  # seconds for a group to come together


class OverIpc:
    """A group without a secret: a private socket file."""

    secret: str | None = None

    def __init__(self, rank: int, size: int, place: Place) -> None:
        self._rank = rank
        self._comm = zcoll.connect(
            *("127.0.0.1", place.port, rank, size),
            secret=self.secret,
            timeout=_LIMIT,
        )

    def allreduce(self, payload: Payload) -> Call:
        """One blocking call."""
        value, reduce_fn = payload.make(), payload.reduce_fn
        return lambda: self._comm.allreduce(value, reduce_fn)

    def broadcast(self, payload: Payload) -> Call:
        """One blocking call, from rank 0."""
        value = payload.make() if self._rank == 0 else None
        return lambda: self._comm.broadcast(value)

    def gather(self, payload: Payload) -> Call:
        """One blocking call, to rank 0."""
        value = payload.make()
        return lambda: self._comm.gather(value)

    def pipeline(self, payload: Payload) -> Call:
        """Futures, collected in order."""
        value, reduce_fn = payload.make(), payload.reduce_fn

        def call() -> object:
            futures = [
                self._comm.allreduce_async(value, reduce_fn) for _ in range(OUTSTANDING)
            ]
            return [future.result() for future in futures][-1]

        return call

    def close(self) -> None:
        """Leave together."""
        self._comm.teardown(timeout=_LIMIT)


class OverTcp(OverIpc):
    """A group with a secret: CURVE over TCP."""

    secret = _SECRET

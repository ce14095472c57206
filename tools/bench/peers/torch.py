"""torch.distributed over gloo: its calls on objects, and those on tensors."""

from __future__ import annotations

import functools
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from bench.cells import OUTSTANDING

if TYPE_CHECKING:
    from bench.orders import Place
    from bench.payloads import Payload
    from bench.peers.contract import Call


class _Gloo:
    def __init__(self, rank: int, size: int, place: Place) -> None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        self._rank = rank
        self._size = size
        distributed.init_process_group(
            "gloo",
            init_method=f"tcp://127.0.0.1:{place.port}",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=120),
        )

    def close(self) -> None:
        """Leave."""
        distributed.destroy_process_group()


class Objects(_Gloo):
    """Pickled objects. There is no reduction of them: gathered by all, then folded."""

    def allreduce(self, payload: Payload) -> Call:
        """Everybody gets all values, and folds them."""
        value, reduce_fn = payload.make(), payload.reduce_fn

        def call() -> object:
            values: list[Any] = [None] * self._size
            distributed.all_gather_object(values, value)
            return functools.reduce(reduce_fn, values)

        return call

    def broadcast(self, payload: Payload) -> Call:
        """One blocking call, from rank 0."""
        value = payload.make() if self._rank == 0 else None

        def call() -> object:
            values = [value]
            distributed.broadcast_object_list(values, src=0)
            return values[0]

        return call

    def gather(self, payload: Payload) -> Call:
        """One blocking call, to rank 0."""
        value = payload.make()

        def call() -> object:
            values: list[Any] | None = [None] * self._size if self._rank == 0 else None
            distributed.gather_object(value, values, dst=0)
            return values

        return call


class Tensors(_Gloo):
    """Tensors of a known type and length, changed in place: no objects."""

    def allreduce(self, payload: Payload) -> Call:
        """The sum, in the place of the value."""
        tensor = torch.as_tensor(payload.make())

        def call() -> object:
            distributed.all_reduce(tensor)
            return tensor

        return call

    def broadcast(self, payload: Payload) -> Call:
        """Into the others' tensors."""
        tensor = torch.as_tensor(payload.make())

        def call() -> object:
            distributed.broadcast(tensor, src=0)
            return tensor

        return call

    def gather(self, payload: Payload) -> Call:
        """Into tensors of rank 0."""
        tensor = torch.as_tensor(payload.make())
        rows = None
        if self._rank == 0:
            rows = [torch.empty_like(tensor) for _ in range(self._size)]

        def call() -> object:
            distributed.gather(tensor, rows, dst=0)
            return rows

        return call

    def pipeline(self, payload: Payload) -> Call:
        """Asynchronous calls, waited for in order."""

        def call() -> object:
            tensors = [torch.as_tensor(payload.make()) for _ in range(OUTSTANDING)]
            works = [distributed.all_reduce(each, async_op=True) for each in tensors]
            for work in works:
                work.wait()
            return tensors[-1]

        return call

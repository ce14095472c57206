"""mpi4py: objects by its lower-case methods, buffers by its upper-case ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mpi4py
import numpy as np

mpi4py.rc.initialize = False  # MPI starts when the group does, as with the others

from mpi4py import MPI  # noqa: E402 - after the setting

if TYPE_CHECKING:
    from bench.orders import Place
    from bench.payloads import Payload
    from bench.peers.contract import Call


class Objects:
    """Pickled objects. There are no asynchronous collectives of them."""

    def __init__(self, rank: int, size: int, _place: Place) -> None:
        MPI.Init_thread()  # as mpi4py does by itself: only then waits yield
        self._comm = MPI.COMM_WORLD
        if (self._comm.Get_rank(), self._comm.Get_size()) != (rank, size):
            raise RuntimeError("mpiexec is not of the MPI that mpi4py uses")

    def allreduce(self, payload: Payload) -> Call:
        """One blocking call, with the same function as all."""
        value, reduce_fn = payload.make(), payload.reduce_fn
        return lambda: self._comm.allreduce(value, op=reduce_fn)

    def broadcast(self, payload: Payload) -> Call:
        """One blocking call, from rank 0."""
        value = payload.make() if self._comm.Get_rank() == 0 else None
        return lambda: self._comm.bcast(value, root=0)

    def gather(self, payload: Payload) -> Call:
        """One blocking call, to rank 0."""
        value = payload.make()
        return lambda: self._comm.gather(value, root=0)

    def close(self) -> None:
        """End MPI, together."""
        MPI.Finalize()


class Buffers(Objects):
    """Arrays of a known type and length, into memory that is there: no objects."""

    def allreduce(self, payload: Payload) -> Call:
        """The sum by MPI's own operation."""
        value = np.atleast_1d(payload.make())
        result = np.empty_like(value)

        def call() -> object:
            self._comm.Allreduce(value, result, op=MPI.SUM)
            return result

        return call

    def broadcast(self, payload: Payload) -> Call:
        """Into the others' memory."""
        value = np.atleast_1d(payload.make())

        def call() -> object:
            self._comm.Bcast(value, root=0)
            return value

        return call

    def gather(self, payload: Payload) -> Call:
        """Into one array of rank 0."""
        value = np.atleast_1d(payload.make())
        rows = None
        if self._comm.Get_rank() == 0:
            rows = np.empty((self._comm.Get_size(), *value.shape))
            rows = rows.astype(value.dtype)

        def call() -> object:
            self._comm.Gather(value, rows, root=0)
            return rows

        return call

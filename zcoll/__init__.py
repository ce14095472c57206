"""Collective calls on Python objects between the processes of a distributed job.

::

    import zcoll

    zcoll.initialize()                      # waits for every replica
    total = zcoll.allreduce(len(my_batch))  # the sum, on every replica
    config = zcoll.broadcast(config)        # rank 0's, on every replica
    zcoll.teardown()
"""

import sys

if sys.platform == "win32":
    raise ImportError(
        "zcoll runs on Linux and macOS: on Windows, run it inside WSL or a container"
    )

from zcoll import ops
from zcoll.absence import Absence, Whereabouts
from zcoll.absent import ABSENT
from zcoll.codec import plain_loads
from zcoll.collective import (
    abort,
    allreduce,
    allreduce_async,
    barrier,
    broadcast,
    connect,
    initialize,
    is_initialized,
    num_replicas,
    replica_rank,
    teardown,
    world,
)
from zcoll.communicator import Communicator
from zcoll.errors import (
    AbortedError,
    AlreadyInitializedError,
    AuthenticationError,
    BacklogError,
    ClosedError,
    CollectiveError,
    CollectiveTimeoutError,
    ConfigurationError,
    DecodeError,
    EncodeError,
    GroupError,
    MismatchError,
    NotInitializedError,
    ProtocolError,
    ReduceError,
    ReentrantCallError,
    RejectedError,
    RendezvousError,
    RendezvousTimeoutError,
    ReplicaExitedError,
    ReplicaLostError,
    SecurityError,
    ZcollError,
)
from zcoll.futures import Future
from zcoll.launchers.settings import Tuning
from zcoll.reducer import default_reduce_fn
from zcoll.version import __version__

__all__ = [
    "ABSENT",
    "AbortedError",
    "Absence",
    "AlreadyInitializedError",
    "AuthenticationError",
    "BacklogError",
    "ClosedError",
    "CollectiveError",
    "CollectiveTimeoutError",
    "Communicator",
    "ConfigurationError",
    "DecodeError",
    "EncodeError",
    "Future",
    "GroupError",
    "MismatchError",
    "NotInitializedError",
    "ProtocolError",
    "ReduceError",
    "ReentrantCallError",
    "RejectedError",
    "RendezvousError",
    "RendezvousTimeoutError",
    "ReplicaExitedError",
    "ReplicaLostError",
    "SecurityError",
    "Tuning",
    "Whereabouts",
    "ZcollError",
    "__version__",
    "abort",
    "allreduce",
    "allreduce_async",
    "barrier",
    "broadcast",
    "connect",
    "default_reduce_fn",
    "initialize",
    "is_initialized",
    "num_replicas",
    "ops",
    "plain_loads",
    "replica_rank",
    "teardown",
    "world",
]

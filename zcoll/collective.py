"""The ways into a group, and the collectives of one default group.

The functions of ``adaptdl.collective`` have its names and semantics.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Literal, TypeVar

from zcoll.communicator import Communicator
from zcoll.engine import exits
from zcoll.engine.engine import Engine
from zcoll.errors import AlreadyInitializedError, GroupError, NotInitializedError
from zcoll.launchers.environment import read_settings
from zcoll.reducer import default_reduce_fn

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Unpack

    from zcoll.codec import Loads
    from zcoll.futures import Future
    from zcoll.launchers.settings import Tuning

T = TypeVar("T")

_world: Communicator | None = None
_lock = threading.Lock()


def connect(
    master_addr: str | None = None,
    master_port: int | None = None,
    replica_rank: int | Literal["auto"] | None = None,
    num_replicas: int | None = None,
    *,
    secret: str | bytes | None = None,
    timeout: float | None = None,
    bind_addr: str | None = None,
    job_id: str | None = None,
    loads: Loads | None = None,
    **tuning: Unpack[Tuning],
) -> Communicator:
    """Join a group, and wait until it is complete.

    What is not given comes from ``ZCOLL_MASTER_ADDR``, ``ZCOLL_MASTER_PORT``,
    ``ZCOLL_REPLICA_RANK`` and ``ZCOLL_NUM_REPLICAS``, then from the same names with
    ``ADAPTDL_``, then it is one replica alone.

    Args:
        master_addr: The address or name of rank 0's host. Without a secret only
            addresses of this host: a socket file of this user is used, not TCP.
        master_port: A free port there, the same on every replica.
        replica_rank: This replica's rank; or ``"auto"``, and rank 0 gives it one when
            all have come: those of a host get neighbouring ranks.
        num_replicas: The size of the group, the same on every replica.
        secret: At least 16 bytes, the same on every replica: whoever knows it may
            join. It also comes from ``ZCOLL_SECRET`` or ``ZCOLL_SECRET_FILE``.
        timeout: Seconds until the group must be complete; 300 by default.
        bind_addr: Where rank 0 listens, if its host does not have ``master_addr``.
            It also comes from ``ZCOLL_BIND_ADDR``.
        job_id: A name; replicas of another job are refused. It also comes from
            ``ZCOLL_JOB_ID``, or from AdaptDL's job and its number of restarts.
        loads: Unpickles values and results here, instead of ``pickle.loads``, and
            is called like it: ``loads(data, buffers=buffers)``.
            :func:`zcoll.plain_loads` takes plain data and NumPy arrays only.
        tuning: What few programs need: see :class:`zcoll.Tuning`.

    Returns:
        The replica's communicator.

    Raises:
        ConfigurationError: A value is wrong or missing, or the port is in use.
        SecurityError: The directory of private sockets cannot be trusted.
        RendezvousTimeoutError: Somebody is ``.missing``.
        RejectedError: Rank 0 refused this replica: its rank is taken, for instance.
        AuthenticationError: The secrets differ, or only one side has one.
    """
    from zcoll.engine.joining import join  # noqa: PLC0415 - only for those who join

    settings = read_settings(
        master_addr,
        master_port,
        replica_rank,
        num_replicas,
        secret=secret,
        timeout=timeout,
        bind_addr=bind_addr,
        job_id=job_id,
        loads=loads,
        **tuning,
    )
    engine = join(settings)
    if isinstance(engine, Engine):
        exits.watch(engine, settings.report)
    return Communicator(engine, settings.call_timeout)


def initialize(
    master_addr: str | None = None,
    master_port: int | None = None,
    replica_rank: int | Literal["auto"] | None = None,
    num_replicas: int | None = None,
    *,
    secret: str | bytes | None = None,
    timeout: float | None = None,
    bind_addr: str | None = None,
    job_id: str | None = None,
    loads: Loads | None = None,
    **tuning: Unpack[Tuning],
) -> None:
    """Join the default group, and wait until it is complete.

    The arguments, and where they come from when they are not given, are those of
    :func:`zcoll.connect`; so are the errors.

    Raises:
        AlreadyInitializedError: It is initialized. Call :func:`teardown` first.
    """
    global _world  # noqa: PLW0603 - the default group is the point of this module
    with _lock:
        if _world is not None and not _world.inherited:
            raise AlreadyInitializedError(
                "zcoll is already initialized: call teardown() before initialize()"
            )
        _world = connect(
            master_addr,
            master_port,
            replica_rank,
            num_replicas,
            secret=secret,
            timeout=timeout,
            bind_addr=bind_addr,
            job_id=job_id,
            loads=loads,
            **tuning,
        )


def teardown(*, timeout: float | None = None) -> None:
    """Leave the default group: :meth:`Communicator.teardown`.

    Afterwards :func:`initialize` works again, any number of times.

    Args:
        timeout: The limit in seconds. When it runs out the group is still there.

    Raises:
        NotInitializedError: There is no default group.
        CollectiveTimeoutError: Not everybody has called it in time.
        GroupError: The group ended otherwise before everybody called it.
    """
    global _world  # noqa: PLW0603 - as above
    group = world()
    try:
        group.teardown(timeout=timeout)
    except GroupError:
        _world = None
        raise
    _world = None


def world() -> Communicator:
    """The default group.

    Raises:
        NotInitializedError: There is none.
    """
    if _world is None:
        raise NotInitializedError(
            "zcoll is not initialized: call zcoll.initialize() on every replica first"
        )
    return _world


def is_initialized() -> bool:
    """Whether there is a default group."""
    return _world is not None


def replica_rank() -> int:
    """This replica's rank in the default group.

    Raises:
        NotInitializedError: There is none.
    """
    return world().replica_rank


def num_replicas() -> int:
    """The size of the default group.

    Raises:
        NotInitializedError: There is none.
    """
    return world().num_replicas


def allreduce(
    value: T,
    reduce_fn: Callable[[T, T], T] = default_reduce_fn,
    *,
    timeout: float | None = None,
    tag: str = "",
) -> T:
    """Reduce the values of all replicas: :meth:`Communicator.allreduce`."""
    return world().allreduce(value, reduce_fn, timeout=timeout, tag=tag)


def allreduce_async(
    value: T, reduce_fn: Callable[[T, T], T] = default_reduce_fn, *, tag: str = ""
) -> Future[T]:
    """Start an allreduce: :meth:`Communicator.allreduce_async`."""
    return world().allreduce_async(value, reduce_fn, tag=tag)


def broadcast(
    value: T | None, *, root: int = 0, timeout: float | None = None, tag: str = ""
) -> T:
    """Give everybody the root's value: :meth:`Communicator.broadcast`."""
    return world().broadcast(value, root=root, timeout=timeout, tag=tag)


def barrier(*, timeout: float | None = None, tag: str = "") -> None:
    """Wait until every replica has called it: :meth:`Communicator.barrier`."""
    world().barrier(timeout=timeout, tag=tag)


def abort(reason: str) -> None:
    """End the default group on every replica: :meth:`Communicator.abort`."""
    world().abort(reason)

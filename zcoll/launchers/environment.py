"""Arguments and environment variables become settings.

What is not given as an argument comes from ``ZCOLL_*``, then from AdaptDL's
``ADAPTDL_*``, then from AdaptDL's defaults: one replica alone. This package is the
only one that reads the environment.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from zcoll.errors import ConfigurationError
from zcoll.launchers.settings import (
    Liveness,
    Settings,
    Target,
    Tuning,
    check_seconds,
    check_timeout,
)
from zcoll.wire import AUTO_RANK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from zcoll.codec import Loads
    from zcoll.security import Secret

DEFAULT_ADDR = "0.0.0.0"  # noqa: S104 - AdaptDL's; without a secret: this host only
DEFAULT_TIMEOUT = 300.0  # seconds for the group to come together


# What launchers call the job, and how often they have started it again.
_LAUNCHERS_JOBS = (
    ("ADAPTDL_JOB_ID", "ADAPTDL_NUM_RESTARTS"),
    ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"),
    ("SLURM_JOB_ID", "SLURM_RESTART_COUNT"),
)


class _Source:
    """Looks a setting up under its names, and says which one it came from."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def text(self, *names: str) -> tuple[str, str] | None:
        """The first of these variables that is set: its value and its name."""
        for name in names:
            value = self._environ.get(name)
            if value is not None and value.strip():
                return value.strip(), name
        return None

    def integer(
        self, given: int | None, argument: str, *names: str
    ) -> tuple[int, str] | None:
        """An argument if it is given, else the first variable that is set."""
        if given is not None:
            if isinstance(given, bool) or not hasattr(given, "__index__"):
                raise ConfigurationError(f"{argument} must be an int, not {given!r}")
            return given.__index__(), f"{argument}="
        found = self.text(*names)
        if found is None:
            return None
        try:
            return int(found[0]), found[1]
        except ValueError:
            raise ConfigurationError(
                f"{found[1]}={found[0]!r} is not a whole number"
            ) from None

    def seconds(self, given: float | None, argument: str, *names: str) -> float | None:
        """A limit in seconds, from an argument or a variable."""
        value, source = given, argument
        found = self.text(*names) if given is None else None
        if found is not None:
            source = found[1]
            try:
                value = float(found[0])
            except ValueError:
                raise ConfigurationError(
                    f"{source}={found[0]!r} is not a number of seconds"
                ) from None
        return None if value is None else check_seconds(value, source)


def read_settings(
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
) -> Settings:
    """Put arguments, environment and defaults together, and check them.

    Raises:
        ConfigurationError: A value is wrong, or one is missing that the others need.
    """
    source = _Source(os.environ)
    rank, size = _place_in_group(source, replica_rank, num_replicas)
    found_secret = _secret(source, secret)
    address = (
        (master_addr, "master_addr=")
        if master_addr is not None
        else source.text("ZCOLL_MASTER_ADDR", "ADAPTDL_MASTER_ADDR")
    )
    port = source.integer(
        master_port, "master_port", "ZCOLL_MASTER_PORT", "ADAPTDL_MASTER_PORT"
    ) or (0, "the master port")
    if size > 1:
        _check_master(address, *port, secret=found_secret is not None)
    bind = bind_addr or (source.text("ZCOLL_BIND_ADDR") or (None,))[0]
    if loads is not None and not callable(loads):
        raise ConfigurationError(
            f"loads must be a function like pickle.loads, not {loads!r}"
        )
    limit = DEFAULT_TIMEOUT if timeout is None else check_seconds(timeout, "timeout")
    fd = source.integer(None, "", "ZCOLL_LISTEN_FD")
    return Settings(
        master_addr=address[0] if address is not None else DEFAULT_ADDR,
        master_port=port[0],
        rank=rank,
        num_replicas=size,
        secret=found_secret,
        bind_addr=bind,
        job=_job(source, job_id),
        timeout=limit,
        call_timeout=check_timeout(source.seconds(None, "", "ZCOLL_TIMEOUT")),
        liveness=_liveness(source, **tuning),
        listen_fd=fd[0] if fd is not None and rank == 0 else None,
        report=(source.text("ZCOLL_RUN_REPORT") or (None,))[0],
        loads=loads,
        shares_memory=_shares_memory(source),
    )


def read_target(address: str | None, port: int | None) -> Target:
    """Where the group is that the environment, or an argument, speaks of.

    Raises:
        ConfigurationError: Nothing says where, or the secret is none.
    """
    source = _Source(os.environ)
    found = source.text("ZCOLL_MASTER_ADDR", "ADAPTDL_MASTER_ADDR")
    number = source.integer(port, "port", "ZCOLL_MASTER_PORT", "ADAPTDL_MASTER_PORT")
    if number is None:
        raise ConfigurationError(
            "no group to ask: give HOST:PORT, or set ZCOLL_MASTER_ADDR and "
            "ZCOLL_MASTER_PORT"
        )
    default = found[0] if found is not None else DEFAULT_ADDR
    return Target(address or default, number[0], _secret(source, None))


def _place_in_group(
    source: _Source,
    replica_rank: int | Literal["auto"] | None,
    num_replicas: int | None,
) -> tuple[int, int]:
    rank = _rank(source, replica_rank)
    size = source.integer(
        num_replicas, "num_replicas", "ZCOLL_NUM_REPLICAS", "ADAPTDL_NUM_REPLICAS"
    )
    if size is not None and size[0] < 1:
        raise ConfigurationError(f"{size[1]} {size[0]}: a group has at least 1 replica")
    if rank is None and size is not None and size[0] > 1:
        raise ConfigurationError(
            f"{size[1].rstrip('=')} says {size[0]} replicas, and nothing says which "
            "one this is: set ZCOLL_REPLICA_RANK, or give replica_rank="
        )
    number = rank[0] if rank is not None else 0
    if size is None and number != 0:
        who = f"replica {number}" if number != AUTO_RANK else "a replica of a group"
        raise ConfigurationError(
            f"this is {who}, and nothing says of how many: set "
            "ZCOLL_NUM_REPLICAS, or give num_replicas="
        )
    total = size[0] if size is not None else 1
    if number == AUTO_RANK:
        return (AUTO_RANK, total) if total > 1 else (0, 1)
    if not 0 <= number < total:
        raise ConfigurationError(
            f"rank {number} is out of range: with {total} replicas, ranks are 0 to "
            f"{total - 1}"
        )
    return number, total


def _rank(
    source: _Source, given: int | Literal["auto"] | None
) -> tuple[int, str] | None:
    """A rank that is given, or that rank 0 is asked for."""
    names = "ZCOLL_REPLICA_RANK", "ADAPTDL_REPLICA_RANK"
    if given == "auto":
        return AUTO_RANK, "replica_rank="
    found = source.text(*names) if given is None else None
    if found is not None and found[0] == "auto":
        return AUTO_RANK, found[1]
    rank = source.integer(given, "replica_rank", *names)
    if rank is not None and rank[0] < 0:
        raise ConfigurationError(
            f'{rank[1]} {rank[0]}: ranks start at 0, and "auto" asks rank 0 for one'
        )
    return rank


def _job(source: _Source, job_id: str | None) -> str:
    """The job's name; one that was started again is another job."""
    if job_id is not None:
        return job_id
    found = source.text("ZCOLL_JOB_ID")
    if found is not None:
        return found[0]
    for name, restarts in _LAUNCHERS_JOBS:
        found, again = source.text(name), source.text(restarts)
        if found is not None:
            return found[0] if again is None else f"{found[0]}, restart {again[0]}"
    return ""


def _liveness(
    source: _Source,
    heartbeat_interval: float | None = None,
    heartbeat_timeout: float | None = None,
    reconnect_window: float | None = None,
    stall_warning: float | None = None,
    max_pending: int | None = None,
) -> Liveness:
    default = Liveness()
    times = {
        "heartbeat_interval": heartbeat_interval,
        "heartbeat_timeout": heartbeat_timeout,
        "reconnect_window": reconnect_window,
        "stall_warning": stall_warning,
    }
    values: dict[str, float] = {}
    for name, given in times.items():
        value = source.seconds(given, name, f"ZCOLL_{name.upper()}")
        values[name] = getattr(default, name) if value is None else value
    pending = source.integer(max_pending, "max_pending", "ZCOLL_MAX_PENDING")
    most = default.max_pending if pending is None else pending[0]
    return Liveness(**values, max_pending=most).check()


def _shares_memory(source: _Source) -> bool:
    value, _ = source.text("ZCOLL_LANE") or ("auto", "")
    if value not in ("auto", "zmq"):
        raise ConfigurationError(
            f"ZCOLL_LANE={value!r}: it is auto (shared memory "
            "between replicas of one host, the default) or zmq (never)"
        )
    return value == "auto"


def _secret(source: _Source, given: str | bytes | None) -> Secret | None:
    # A variable that is set and empty is a mistake, and never "no secret".
    environ = os.environ
    named = [name for name in ("ZCOLL_SECRET", "ZCOLL_SECRET_FILE") if name in environ]
    if given is None and not named:
        return None
    from zcoll.security import Secret  # noqa: PLC0415 - not without one

    if given is not None:
        return Secret.of(given, "secret=")
    if len(named) == 2:
        raise ConfigurationError(
            "ZCOLL_SECRET and ZCOLL_SECRET_FILE are both set: unset one of them"
        )
    if named == ["ZCOLL_SECRET"]:
        return Secret.of(environ["ZCOLL_SECRET"], "ZCOLL_SECRET")
    return Secret.read(environ["ZCOLL_SECRET_FILE"])


def _check_master(
    address: tuple[str, str] | None, port: int, source: str, *, secret: bool
) -> None:
    if port == 0:
        raise ConfigurationError(
            f"{source} is 0: several replicas need to know rank 0's port: set "
            "ZCOLL_MASTER_PORT to the same free port on every replica, or give "
            "master_port="
        )
    if address is None and secret:
        raise ConfigurationError(
            "a group with a secret uses TCP, and nothing says where rank 0 is: set "
            "ZCOLL_MASTER_ADDR to its address on every replica, or give master_addr="
        )

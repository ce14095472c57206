"""What a replica must know to find its place in a group, and checks of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from zcoll.errors import ConfigurationError

if TYPE_CHECKING:
    from zcoll.codec import Loads
    from zcoll.security import Secret

FOR_EVER = 1e9  # seconds from which a limit is none; locks cannot count much further
MIN_HEARTBEAT = 0.05  # seconds
MAX_HEARTBEAT = 30.0  # seconds; ZMTP's heartbeat TTL has room for twice that


class Tuning(TypedDict, total=False):
    """Arguments of ``initialize`` and ``connect`` that few programs need.

    Each also comes from a variable: ``ZCOLL_HEARTBEAT_INTERVAL`` and so on.

    Attributes:
        heartbeat_interval: Seconds between signs of life on an idle connection (2).
        heartbeat_timeout: Seconds without one after which a connection counts as
            gone (10); more than the interval.
        reconnect_window: Seconds for which a TCP connection may stay down before
            its replica counts as lost (2).
        stall_warning: Seconds in one call after which it is logged who is missing,
            and where they are (30). Infinity: never.
        max_pending: Calls that may be in flight at a time (4096): the next one
            waits.
    """

    heartbeat_interval: float | None
    heartbeat_timeout: float | None
    reconnect_window: float | None
    stall_warning: float | None
    max_pending: int | None


class Liveness(NamedTuple):
    """How soon silence means loss, in seconds. See :class:`Tuning`."""

    heartbeat_interval: float = 2.0
    heartbeat_timeout: float = 10.0
    reconnect_window: float = 2.0
    stall_warning: float = 30.0
    max_pending: int = 4096

    def check(self) -> Liveness:
        """Check the times against each other, and give them back.

        Raises:
            ConfigurationError: They contradict each other.
        """
        if not MIN_HEARTBEAT <= self.heartbeat_interval <= MAX_HEARTBEAT:
            raise ConfigurationError(
                f"heartbeat_interval is {self.heartbeat_interval:g} s: it must be from "
                f"{MIN_HEARTBEAT:g} to {MAX_HEARTBEAT:g} s"
            )
        if not self.heartbeat_interval < self.heartbeat_timeout <= MAX_HEARTBEAT:
            raise ConfigurationError(
                f"heartbeat_timeout is {self.heartbeat_timeout:g} s: it must be more "
                f"than heartbeat_interval ({self.heartbeat_interval:g} s), and at most "
                f"{MAX_HEARTBEAT:g} s"
            )
        if self.reconnect_window > MAX_HEARTBEAT:
            raise ConfigurationError(
                f"reconnect_window is {self.reconnect_window:g} s: it must be at most "
                f"{MAX_HEARTBEAT:g} s"
            )
        if self.max_pending < 1:
            raise ConfigurationError(
                f"max_pending is {self.max_pending}: at least 1 call must be possible"
            )
        return self


class Settings(NamedTuple):
    """Where this replica stands in its group.

    Attributes:
        master_addr: The address of rank 0.
        master_port: The port of rank 0; 0 for one replica alone.
        rank: This replica's rank, or ``AUTO_RANK``: rank 0 gives it one.
        num_replicas: The size of the group.
        secret: The group's secret, or None for a group of this host and user.
        bind_addr: Where rank 0 listens, if not on ``master_addr``.
        job: The job's name, or "".
        timeout: Seconds for the group to come together.
        call_timeout: Seconds for a call that names no limit, or None.
        liveness: How soon silence means loss.
        listen_fd: A listening socket that a launcher has handed over, or None.
        report: The file by which ``zcoll run`` is told how it ended, or None.
        loads: What unpickles values, or None for pickle.
        shares_memory: Whether replicas of one host may meet in shared memory.
    """

    master_addr: str
    master_port: int
    rank: int
    num_replicas: int
    secret: Secret | None
    bind_addr: str | None
    job: str
    timeout: float
    call_timeout: float | None
    liveness: Liveness
    listen_fd: int | None
    report: str | None
    loads: Loads | None
    shares_memory: bool


class Target(NamedTuple):
    """A group to look at from outside, as ``zcoll ping`` does.

    Attributes:
        master_addr: The address of rank 0.
        master_port: The port of rank 0.
        secret: The group's secret, or None.
    """

    master_addr: str
    master_port: int
    secret: Secret | None


def check_seconds(value: float, source: str) -> float:
    """Check a number of seconds; infinity is one.

    Raises:
        ConfigurationError: It is negative or not a number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigurationError(f"{source} must be a number of seconds, not {value!r}")
    if math.isnan(value) or value < 0:
        raise ConfigurationError(f"{source} must not be negative: {value!r}")
    return float(value)


def check_timeout(value: float | None, source: str = "timeout") -> float | None:
    """Check a limit in seconds; None and infinity mean none.

    Raises:
        ConfigurationError: It is negative or not a number.
    """
    checked = math.inf if value is None else check_seconds(value, source)
    return None if checked > FOR_EVER else checked

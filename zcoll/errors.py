"""Every error that zcoll raises.

::

    ZcollError
      ConfigurationError (ValueError)            an argument or variable is wrong
      SecurityError                              a directory or socket cannot be trusted
      NotInitializedError (RuntimeError)         used before initialize()
      AlreadyInitializedError (RuntimeError)     initialize() called twice
      ReentrantCallError (RuntimeError)          a wait that would wait for itself
      BacklogError (RuntimeError)                too many calls are in flight
      RendezvousError                            the group did not come together
        RendezvousTimeoutError (TimeoutError)      somebody is missing: .missing
        RejectedError                              rank 0 refused this replica: .reason
        AuthenticationError                        the secrets differ
      ProtocolError                              bytes that no zcoll wrote
      CollectiveError                            one call failed; the group lives
        EncodeError                                a value could not be pickled
        DecodeError                                a value could not be unpickled
        ReduceError                                the reduce function raised
        CollectiveTimeoutError (TimeoutError)      somebody is missing: .missing
      GroupError (RuntimeError)                  the group is over
        MismatchError                              replicas made different calls
        ReplicaLostError                           a replica died: .rank
        ReplicaExitedError                         a replica left: .rank, .reason
        AbortedError                               a replica called abort(): .reason
        ClosedError                                this replica has left

Errors carry fields and build their text in ``__str__``. What rank 0 decides travels
as those fields (``protocol/failures.py``), so it reads the same on every replica.
"""

from __future__ import annotations

import concurrent.futures
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zcoll.absence import Absence

if sys.version_info >= (3, 11):

    class _TimeoutBaseError(TimeoutError):
        """What ``except TimeoutError`` and ``Future.result`` users catch."""

else:

    class _TimeoutBaseError(concurrent.futures.TimeoutError, TimeoutError):
        """What ``except TimeoutError`` and ``Future.result`` users catch."""


def name_ranks(ranks: Sequence[int]) -> str:
    """Write ranks as people do: ``replica 3``, ``replicas 1, 4-7``."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    names = [str(low) if low == high else f"{low}-{high}" for low, high in spans]
    return f"replica{'s' if len(ranks) != 1 else ''} {', '.join(names) or 'none'}"


class ZcollError(Exception):
    """The base of every error of zcoll."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by the fields, since the constructors take keywords."""
        return _rebuild, (type(self), self.__dict__.copy(), self.args)


def _rebuild(
    kind: type[ZcollError], state: dict[str, Any], args: tuple[Any, ...]
) -> ZcollError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ConfigurationError(ZcollError, ValueError):
    """An argument or an environment variable is wrong."""


class SecurityError(ZcollError):
    """Something on this machine cannot be trusted, such as a directory's owner."""


class NotInitializedError(ZcollError, RuntimeError):
    """A collective was called before :func:`zcoll.initialize`."""


class AlreadyInitializedError(ZcollError, RuntimeError):
    """:func:`zcoll.initialize` was called twice without a teardown between."""


class ReentrantCallError(ZcollError, RuntimeError):
    """A blocking call inside a reduce function or a future's callback."""


class BacklogError(ZcollError, RuntimeError):
    """``max_pending`` calls are in flight, and the next one cannot wait here."""


class RendezvousError(ZcollError):
    """The group did not come together."""


class RendezvousTimeoutError(RendezvousError, _TimeoutBaseError):
    """Somebody did not come within the ``timeout`` of ``initialize``.

    Attributes:
        missing: The ranks that were not there, as far as this replica knows.
        timeout: The limit, in seconds.
        detail: What this replica saw while it waited.
    """

    def __init__(self, missing: Sequence[int], timeout: float, detail: str) -> None:
        super().__init__()
        self.missing = list(missing)
        self.timeout = timeout
        self.detail = detail

    def __str__(self) -> str:
        who = name_ranks(self.missing)
        return f"the group was not complete after {self.timeout:g} s: {who} missing" + (
            f"; {self.detail}" if self.detail else ""
        )


class RejectedError(RendezvousError):
    """Rank 0 refused this replica.

    Attributes:
        reason: Why, in rank 0's words.
    """

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason

    def __str__(self) -> str:
        return f"rank 0 refused this replica: {self.reason}"


class AuthenticationError(RendezvousError):
    """This replica and rank 0 do not have the same secret."""


class ProtocolError(ZcollError):
    """Bytes that are no message of this protocol version."""


class CollectiveError(ZcollError):
    """One call failed; the group lives, and the next call works.

    Attributes:
        op: The operation's name, such as ``"allreduce"``.
        seq: The call's number in its group; the first is 1.
        rank: The replica on which it failed, by its rank among all; or None.
        message: What happened there.
        site: Where the call was made, as ``file:line function``, or "".
        remote_traceback: The traceback on that replica, or "".
        group: The name of the group, or "" for the group of all replicas.
    """

    def __init__(
        self,
        message: str,
        *,
        op: str = "",
        seq: int = 0,
        rank: int | None = None,
        site: str = "",
        remote_traceback: str = "",
        group: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.op = op
        self.seq = seq
        self.rank = rank
        self.site = site
        self.remote_traceback = remote_traceback
        self.group = group

    @property
    def _call(self) -> str:
        """The call, for people."""
        text = f"{self.op or 'call'} {self.seq}"
        text += f" of group {self.group!r}" if self.group else ""
        return text + (f" ({self.site})" if self.site else "")

    def __str__(self) -> str:
        where = "" if self.rank is None else f" on replica {self.rank}"
        text = f"{self._call} failed{where}: {self.message}"
        if self.remote_traceback:
            text += f"\n\nTraceback of replica {self.rank}:\n{self.remote_traceback}"
        return text


class EncodeError(CollectiveError):
    """A value, or a result, could not be pickled."""


class DecodeError(CollectiveError):
    """A value, or a result, could not be unpickled."""


class ReduceError(CollectiveError):
    """The reduce function raised."""


class CollectiveTimeoutError(CollectiveError, _TimeoutBaseError):
    """A call did not end within its ``timeout``; it is still in flight.

    Attributes:
        missing: The ranks, among all replicas, whose contribution has not arrived.
        timeout: The limit, in seconds.
        report: Where the missing are, as far as rank 0 knows: one
            :class:`zcoll.Absence` each (for the first 16).
        future: The call's future: wait on it again, never repeat the call. (It
            is None in a copy of the error that was pickled.)
    """

    def __init__(
        self,
        message: str,
        *,
        missing: Sequence[int],
        timeout: float,
        report: Sequence[Absence] = (),
        op: str = "",
        seq: int = 0,
        site: str = "",
        group: str = "",
        future: Any = None,
    ) -> None:
        super().__init__(message, op=op, seq=seq, site=site, group=group)
        self.missing = list(missing)
        self.timeout = timeout
        self.report = list(report)
        self.future = future

    def __str__(self) -> str:
        if not self.seq and self.future is None:  # no call: a wait for others' calls
            return f"{self.op} did not end within {self.timeout:g} s: {self.message}"
        return (
            f"{self._call} did not end within {self.timeout:g} s: {self.message}; the "
            "call is still in flight: wait on this error's .future, do not repeat it"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), {**self.__dict__, "future": None}, self.args)


class GroupError(ZcollError, RuntimeError):
    """The group is over: every later call raises this, until ``teardown()``.

    Attributes:
        message: What happened.
        rank: The replica that it is about, or None.
        host: That replica's host, or "".
        pid: That replica's process, or 0.
        reason: Why that replica left, or "".
        group: The name of the group that is over, or "" for that of all replicas.
    """

    def __init__(
        self,
        message: str,
        *,
        rank: int | None = None,
        host: str = "",
        pid: int = 0,
        reason: str = "",
        group: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.rank = rank
        self.host = host
        self.pid = pid
        self.reason = reason
        self.group = group

    def __str__(self) -> str:
        return self.message


class MismatchError(GroupError):
    """Replicas made different calls where the same one was due."""


class ReplicaLostError(GroupError):
    """A replica died or could not be reached."""


class ReplicaExitedError(GroupError):
    """A replica left the group, and a call needs it."""


class AbortedError(GroupError):
    """A replica has ended the group by ``abort()``."""


class ClosedError(GroupError):
    """This replica has left the group, by teardown, close or fork."""

"""Where a replica is that is missing in a call."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from zcoll.errors import ProtocolError


class Whereabouts(enum.Enum):
    """What is known of a replica that has not made a call."""

    NEVER_JOINED = "never joined"
    GONE = "gone"  # it left, or was lost
    DISCONNECTED = "disconnected"  # its connection is down
    SILENT = "silent"  # no sign of life: its host, its process or its interpreter
    STUCK = "stuck"  # its process is there, its interpreter does not respond
    IN_USER_CODE = "in user code"
    WAITING = "waiting"  # in another call
    THERE = "there"  # it was heard of, and has not said more


class Absence(NamedTuple):
    """One replica that has not made a call, as rank 0 knows it.

    Attributes:
        rank: Its rank.
        host: Its host, or "" if it never joined.
        pid: Its process, or 0.
        state: Where it is.
        seconds: For how long; for ``THERE``, ``SILENT`` and ``STUCK`` since it was
            last heard of.
        where: Its line of user code, as ``file:line function``, or the other call.
        last_call: What it called last, and where.
        stack: The stack of its main thread, or "".
    """

    rank: int
    host: str
    pid: int
    state: Whereabouts
    seconds: float
    where: str
    last_call: str
    stack: str

    def __str__(self) -> str:
        who = f"replica {self.rank}"
        if self.host:
            who += f" ({self.host}, pid {self.pid})"
        text = f"{who} {self._doing()}"
        if self.state is not Whereabouts.NEVER_JOINED:
            text += f"; it last called {self.last_call}"
        return text

    def _doing(self) -> str:
        age = f"for {self.seconds:.1f} s"
        return {
            Whereabouts.NEVER_JOINED: "has never joined",
            Whereabouts.GONE: "is gone",
            Whereabouts.DISCONNECTED: f"has been disconnected {age}",
            Whereabouts.SILENT: (
                f"has given no sign of life {age}: its host is silent, it is stopped, "
                "or its interpreter is stuck"
            ),
            Whereabouts.STUCK: (
                f"is alive, but its interpreter has not responded {age}: a C call that "
                "holds the lock, perhaps"
            ),
            Whereabouts.IN_USER_CODE: f"is in user code at {self.where} {age}",
            Whereabouts.WAITING: f"waits in {self.where} {age}",
            Whereabouts.THERE: f"was heard of {self.seconds:.1f} s ago",
        }[self.state]


def write_absence(absence: Absence) -> dict[str, Any]:
    """Turn an absence into fields for the wire."""
    return {**absence._asdict(), "state": absence.state.value}


def read_absence(fields: Any) -> Absence:
    """Turn the fields of :func:`write_absence` back.

    Raises:
        ProtocolError: They describe none.
    """
    values: dict[str, Any] = {}
    for name, kind in _TYPES.items():
        value = fields.get(name) if isinstance(fields, dict) else None
        if type(value) is not kind:
            raise ProtocolError(f"an absence with {name}={value!r:.80}")
        values[name] = value
    try:
        return Absence(**{**values, "state": Whereabouts(values["state"])})
    except ValueError:
        raise ProtocolError(f"an absence of no kind: {values['state']!r:.80}") from None


_TYPES: dict[str, type] = {
    "rank": int,
    "host": str,
    "pid": int,
    "state": str,
    "seconds": float,
    "where": str,
    "last_call": str,
    "stack": str,
}

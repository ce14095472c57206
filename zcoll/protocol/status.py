"""What rank 0 tells those who ask from outside: the fields of PONG."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from zcoll.absence import Absence, read_absence
from zcoll.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Present:
    """A replica that is there.

    Attributes:
        rank: Its rank.
        host: Its host.
        pid: Its process.
        package: Its version of zcoll.
    """

    rank: int
    host: str
    pid: int
    package: str


@dataclass(frozen=True, slots=True)
class Pending:
    """The call that the group is at.

    Attributes:
        seq: Its number.
        operation: What it is, with its root.
        site: Where the first replica that made it did so.
        missing: The ranks that have not made it.
        absences: Where they are instead; of many only the first ones.
        text: What it waits for, if nobody is missing.
        group: The name of its group; "" is that of all replicas.
    """

    seq: int
    operation: str
    site: str
    missing: list[int]
    absences: list[Absence]
    text: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """How a group is.

    Attributes:
        package: Rank 0's version of zcoll.
        num_replicas: The size of the group.
        replicas: Those that are there, in rank order.
        unranked: How many more are there, and get their ranks when all have come.
        complete: Whether every replica has come; some may have gone since.
        closing: Whether the group is ending.
        decided: How many calls are done.
        call: The call in progress, or None.
        ways: What the messages of each rank go by, and why, as far as it is known.
    """

    package: str
    num_replicas: int
    replicas: list[Present]
    unranked: int
    complete: bool
    closing: bool
    decided: int
    call: Pending | None
    ways: dict[int, str] = field(default_factory=dict)

    @property
    def missing(self) -> list[int]:
        """The ranks that are not there: not yet, or no more.

        Those without a rank count as if they had got the lowest free ones.
        """
        there = {replica.rank for replica in self.replicas}
        free = [rank for rank in range(self.num_replicas) if rank not in there]
        return free[self.unranked :]

    @property
    def whole(self) -> bool:
        """Whether every replica has come, and is still there."""
        return self.complete and not self.missing


def read_status(fields: Mapping[str, Any]) -> Status:
    """Read the fields of PONG; those of a newer package may be more.

    Raises:
        ProtocolError: A field is missing or of the wrong type.
    """
    call = fields.get("call")
    return Status(
        package=_take(fields, "package", str),
        num_replicas=_take(fields, "num_replicas", int),
        replicas=[_read_present(each) for each in _take(fields, "replicas", list)],
        unranked=_take(fields, "unranked", int),
        complete=_take(fields, "complete", bool),
        closing=_take(fields, "closing", bool),
        decided=_take(fields, "decided", int),
        call=None if call is None else _read_pending(call),
        ways=_read_ways(fields.get("ways")),
    )


def _read_ways(fields: object) -> dict[int, str]:
    if isinstance(fields, dict) and all(
        rank.isdecimal() and isinstance(way, str) for rank, way in fields.items()
    ):
        return {int(rank): way for rank, way in fields.items()}
    raise ProtocolError(f"a status with ways={fields!r:.80}")


def _read_present(fields: object) -> Present:
    return Present(
        rank=_take(fields, "rank", int),
        host=_take(fields, "host", str),
        pid=_take(fields, "pid", int),
        package=_take(fields, "package", str),
    )


def _read_pending(fields: object) -> Pending:
    missing = _take(fields, "ranks", list)
    if not all(type(rank) is int for rank in missing):
        raise ProtocolError(f"a status with ranks={missing!r:.80}")
    return Pending(
        seq=_take(fields, "seq", int),
        operation=_take(fields, "operation", str),
        site=_take(fields, "site", str),
        missing=missing,
        absences=[read_absence(each) for each in _take(fields, "absences", list)],
        text=_take(fields, "text", str),
        group=_take(fields, "group", str),
    )


def _take(fields: object, name: str, kind: type[T]) -> T:
    value = fields.get(name) if isinstance(fields, dict) else None
    if type(value) is not kind:
        raise ProtocolError(f"a status with {name}={value!r:.80}")
    return value

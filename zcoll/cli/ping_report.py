"""What ``zcoll ping`` has found, for people and for programs."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from zcoll.absence import write_absence
from zcoll.errors import name_ranks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zcoll.probe import Answer, Unreachable
    from zcoll.protocol.status import Pending, Present, Status

COMPLETE, INCOMPLETE, UNREACHABLE = 0, 1, 3  # exit codes; 2 is click's wrong usage


@dataclass
class Summary:
    """What the probes of one run have found. The last one decides.

    Attributes:
        sent: How many were sent.
        times: The answered ones' times in seconds.
        status: What rank 0 said to the last one, or None.
        failure: Why the last one was not answered, or None.
    """

    sent: int = 0
    times: list[float] = field(default_factory=list)
    status: Status | None = None
    failure: Unreachable | None = None

    def answered(self, answer: Answer) -> None:
        """Rank 0 has answered a probe."""
        self.times.append(answer.elapsed)
        self.status, self.failure = answer.status, None

    def unanswered(self, failure: Unreachable) -> None:
        """Rank 0 has not: what it said before may no longer hold."""
        self.status, self.failure = None, failure

    @property
    def complete(self) -> bool:
        """Whether rank 0 answers and every replica is there."""
        return self.status is not None and self.status.whole

    def exit_code(self, *, reachable: bool) -> int:
        """The command's exit code.

        Args:
            reachable: Whether it is enough that rank 0 answers.
        """
        if self.status is None:
            return UNREACHABLE
        return COMPLETE if reachable or self.complete else INCOMPLETE

    def milliseconds(self) -> dict[str, float]:
        """Smallest, median, 99th percentile and largest time."""
        times = sorted(t * 1000 for t in self.times)
        if not times:
            return {}
        high = times[math.ceil(len(times) * 0.99) - 1]
        middle = statistics.median(times)
        return {"min": times[0], "median": middle, "p99": high, "max": times[-1]}

    def fields(self) -> dict[str, Any]:
        """Everything, as JSON says it."""
        failure, status = self.failure, self.status
        return {
            "reachable": status is not None,
            "complete": self.complete,
            "reason": None if failure is None else failure.reason.value,
            "detail": None if failure is None else failure.text,
            "sent": self.sent,
            "answered": len(self.times),
            "milliseconds": {k: round(v, 3) for k, v in self.milliseconds().items()},
            "missing": [] if status is None else status.missing,
            "group": None if status is None else _plain(status),
        }

    def lines(self) -> Iterator[str]:
        """What is printed below the probes; the reason of a failure is not in it."""
        line = f"{self.sent} sent, {len(self.times)} answered"
        if times := self.milliseconds():
            values = "/".join(f"{value:.2f}" for value in times.values())
            line += f", min/median/p99/max = {values} ms"
        yield line
        if self.status is not None:
            yield from _describe(self.status)


def describe_answer(number: int, answer: Answer) -> str:
    """One probe's line."""
    zero = next((r for r in answer.status.replicas if r.rank == 0), None)
    who = "replica 0" if zero is None else f"replica 0 ({zero.host}, pid {zero.pid})"
    return f"answer from {who}: seq={number} time={answer.elapsed * 1000:.2f} ms"


def describe_count(status: Status) -> str:
    """How many replicas are there, and which are not."""
    total, missing = status.num_replicas, status.missing
    text = f"{total - len(missing)} of {total} replicas"
    return f"{text}, {name_ranks(missing)} missing" if missing else text


def _describe(status: Status) -> Iterator[str]:
    missing, total = status.missing, status.num_replicas
    state = "complete" if status.whole else "not complete"
    if status.closing:
        state = "ending"
    here = f"{total - len(missing)} of {total} replicas"
    yield f"zcoll {status.package}: {here}, the group is {state}"
    hosts: dict[str, list[Present]] = defaultdict(list)
    for replica in status.replicas:
        hosts[replica.host].append(replica)
    for host, replicas in hosts.items():
        pids = ", ".join(str(replica.pid) for replica in replicas)
        plural = "s" if len(replicas) > 1 else ""
        ranks = name_ranks([replica.rank for replica in replicas])
        yield f"  present: {ranks} on {host} (pid{plural} {pids})"
    if status.unranked:
        plural = "s" if status.unranked > 1 else ""
        yield f"  present: {status.unranked} replica{plural} without a rank as yet"
    if missing:
        yield f"  missing: {name_ranks(missing)}"
    ways: dict[str, list[int]] = defaultdict(list)
    for rank, way in sorted(status.ways.items()):
        ways[way].append(rank)
    for way, ranks_so in ways.items():
        yield f"  way:     {name_ranks(ranks_so)} by {way}"
    if status.call is None:
        yield f"  calls:   {status.decided} done, none in progress"
    else:
        call = status.call
        where = f" of group {call.group!r}" if call.group else ""
        yield f"  calls:   {status.decided} done, call {call.seq}{where} in progress"
        yield from _describe_call(call)


def _describe_call(call: Pending) -> Iterator[str]:
    yield f"    {call.operation}" + (f" at {call.site}" if call.site else "")
    for absence in call.absences:
        yield f"    missing: {absence}"
    if len(call.missing) > len(call.absences):
        yield f"    missing: {len(call.missing) - len(call.absences)} more"
    if not call.missing:
        yield f"    {call.text}"


def _plain(status: Status) -> dict[str, Any]:
    """A status in JSON's own types."""
    fields = asdict(status)
    if status.call is not None:
        fields["call"]["absences"] = [write_absence(a) for a in status.call.absences]
    return fields

"""Who is missing in a call, and where they are instead: rank 0's answers.

Rank 0 knows who has not called and when it heard of each. Where a replica's program
is, only that replica knows: its loop thread answers for it, as long as its
interpreter responds. So an answer waits a moment for those of the missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from zcoll.absence import Absence, Whereabouts, read_absence, write_absence
from zcoll.errors import ProtocolError
from zcoll.protocol.events import Missing
from zcoll.protocol.members import State
from zcoll.wire import Kind, Message, pack_fields, parse_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from zcoll.protocol.groups import Groups
    from zcoll.protocol.members import Member
    from zcoll.protocol.membership import Membership

MAX_DESCRIBED = 16  # replicas that a report describes one by one
ANSWER_TIME = 0.3  # seconds in which a replica that responds has answered
FRESH = 2.0  # seconds for which an answer tells where a replica is
SILENT = 3.0  # seconds without a beacon after which a replica does not respond
MAX_STACK = 16_000  # characters of a stack that are passed on


class _Query(NamedTuple):
    """A question that waits for the answers of those who are missing."""

    rank: int
    group: int
    seq: int
    due: float
    unanswered: set[int]
    told: dict[int, dict[str, Any]]


class Reports:
    """The questions of replicas that wait, and the answers to them.

    Args:
        membership: Who is there.
        groups: Their calls.
        post: Sends an unnumbered message to a member.
    """

    def __init__(
        self,
        membership: Membership,
        groups: Groups,
        post: Callable[[Member, Message], None],
    ) -> None:
        self.reducing: dict[tuple[int, int], str] = {}  # functions, by group and seq
        self._membership = membership
        self._groups = groups
        self._post = post
        self._queries: list[_Query] = []
        self._latest: dict[int, tuple[float, dict[str, Any]]] = {}  # by rank

    def ask(self, rank: int, group: int, seq: int, now: float) -> None:
        """A replica asks who is missing in a call."""
        asked = self._ask_the_missing(group, seq)
        self._queries.append(_Query(rank, group, seq, now + ANSWER_TIME, asked, {}))
        self.tick(now)

    def peek(self, group: int, seq: int, now: float) -> dict[str, Any]:
        """Say at once who is missing in a call, for those who ask from outside.

        Where they are is known if somebody asked a moment ago.
        """
        self._ask_the_missing(group, seq)
        self._forget(now)
        latest = {rank: where for rank, (_, where) in self._latest.items()}
        return self.report(group, seq, now, latest)

    def _forget(self, now: float) -> None:
        """Drop what replicas have told a while ago."""
        stale = [rank for rank, (at, _) in self._latest.items() if now - at >= FRESH]
        for rank in stale:
            del self._latest[rank]

    def _missing(self, group: int, seq: int) -> list[int]:
        calls = self._groups.find(group)
        return [] if calls is None else calls.roll.missing(seq)

    def _ask_the_missing(self, group: int, seq: int) -> set[int]:
        asked = set()
        for absent in self._missing(group, seq)[:MAX_DESCRIBED]:
            member = self._membership.members[absent]
            if member.state is State.PRESENT and member.peer is not None:
                self._post(member, Message(Kind.STACK))
                asked.add(absent)
        return asked

    def told(self, rank: int, fields: dict[str, Any], now: float) -> None:
        """A replica has told where it is.

        Raises:
            ProtocolError: It has not.
        """
        where = read_stack(fields)
        self._latest[rank] = (now, where)
        for query in self._queries:
            if rank in query.unanswered:
                query.unanswered.discard(rank)
                query.told[rank] = where
        self.tick(now)

    def tick(self, now: float) -> None:
        """Answer what can be answered, or has waited long enough."""
        self._forget(now)
        ready = [q for q in self._queries if not q.unanswered or now >= q.due]
        if not ready:
            return
        self._queries = [q for q in self._queries if q not in ready]
        for query in ready:
            fields = self.report(query.group, query.seq, now, query.told)
            member = self._membership.members[query.rank]
            body = pack_fields(fields)
            message = Message(Kind.REPORT, group=query.group, seq=query.seq, body=body)
            self._post(member, message)

    def report(
        self,
        group: int,
        seq: int,
        now: float,
        told: dict[int, dict[str, Any]] | None = None,
    ) -> dict[str, Any]:
        """Say of a call who is missing and where they are, or what it waits for.

        Args:
            group: The call's group.
            seq: The call.
            now: The time.
            told: What those that are missing have said of themselves.

        Returns:
            The fields of REPORT.
        """
        missing = self._missing(group, seq)
        members = [self._membership.members[rank] for rank in missing[:MAX_DESCRIBED]]
        absences = [
            self._describe(group, member, now, (told or {}).get(member.rank, {}))
            for member in members
        ]
        return {
            "ranks": missing,
            "absences": [write_absence(absence) for absence in absences],
            "text": "" if missing else self._what_is_left(group, seq),
        }

    def _what_is_left(self, group: int, seq: int) -> str:
        calls = self._groups.find(group)
        call = None if calls is None else calls.pending()
        if call is None:
            return "everybody has called; the outcome is on its way"
        if call.folding:
            name = self.reducing.get((group, call.seq), "its reduce function")
            return f"everybody has called; rank 0 is in reduce function {name}"
        if call.seq < seq:
            return f"everybody has called; {call} comes first"
        return "everybody has called; values are on their way to rank 0"

    def _describe(
        self, group: int, member: Member, now: float, told: dict[str, Any]
    ) -> Absence:
        silent = max(0.0, now - member.heard)
        state, seconds = Whereabouts.THERE, silent
        if member.state is State.ABSENT:
            state = Whereabouts.NEVER_JOINED
        elif member.state is not State.PRESENT:
            state = Whereabouts.GONE
        elif member.cut is not None:
            state, seconds = Whereabouts.DISCONNECTED, now - member.cut
        elif told:
            waiting = bool(told["waiting"])
            state = Whereabouts.WAITING if waiting else Whereabouts.IN_USER_CODE
            seconds = told["seconds"]
        elif member.rank != 0 and silent >= SILENT:
            # By then heartbeats would have found a process that is not there.
            stuck = silent >= self._membership.timing.silence
            state = Whereabouts.STUCK if stuck else Whereabouts.SILENT
        identity = member.identity
        return Absence(
            rank=member.rank,
            host="" if identity is None else identity.host,
            pid=0 if identity is None else identity.pid,
            state=state,
            seconds=round(seconds, 1),
            where=told.get("waiting") or told.get("where") or "",
            last_call=self._groups.last_call(member.rank, group),
            stack=told.get("stack", ""),
        )


def read_stack(fields: dict[str, Any]) -> dict[str, Any]:
    """Read where a replica says that it is.

    Raises:
        ProtocolError: A field is missing or of the wrong type.
    """
    read: dict[str, Any] = {}
    for name in ("waiting", "where", "stack"):
        if not isinstance(fields.get(name), str):
            raise ProtocolError(f"a stack with {name}={fields.get(name)!r:.80}")
        read[name] = fields[name][-MAX_STACK:]
    if not isinstance(fields.get("seconds"), float):
        raise ProtocolError(f"a stack with seconds={fields.get('seconds')!r:.80}")
    return {**read, "seconds": fields["seconds"]}


def read_report(message: Message) -> Missing:
    """Read rank 0's answer to the question who is missing.

    Raises:
        ProtocolError: It is none.
    """
    fields = parse_fields(message.body)
    absences = fields.get("absences")
    if not isinstance(absences, list):
        raise ProtocolError("a report without absences")
    return Missing(
        group=message.group,
        seq=message.seq,
        ranks=read_ranks(fields.get("ranks")),
        absences=[read_absence(absence) for absence in absences],
        text=str(fields.get("text")),
    )


def read_ranks(value: Any) -> list[int]:
    """Read a list of ranks out of a message's fields.

    Raises:
        ProtocolError: It is none.
    """
    if not isinstance(value, list) or not all(type(rank) is int for rank in value):
        raise ProtocolError(f"a list of ranks that is {value!r:.80}")
    return value

from collections import defaultdict
from typing import Any

from zcoll.operations import BARRIER, SPLIT, Operation
from zcoll.payload import Payload
from zcoll.protocol.coordinator import Coordinator
from zcoll.protocol.events import (
    LOCAL,
    WORLD,
    CoordinatorInstruction,
    Identity,
    Send,
    Timing,
)
from zcoll.protocol.failures import from_fields
from zcoll.protocol.identities import write_identity
from zcoll.protocol.plans import pack_color
from zcoll.wire import Kind, Message, pack_fields, parse_fields

SESSION = 77


def identity(rank: int, size: int) -> Identity:
    return Identity(rank, size, "host", 1000 + rank, 5000 + rank, "1.0", "3.11")


def peer(rank: int) -> bytes:
    return b"peer %d" % rank if rank else LOCAL


class Bench:
    """Rank 0's machine, and replicas that say what a test wants them to say."""

    def __init__(self, size: int = 3, *, joined: bool = True) -> None:
        self.machine = Coordinator(identity(0, size), SESSION, "job", Timing())
        self.machine.announce()
        self.size = size
        self.now = 10.0
        self.numbers = dict.fromkeys(range(size), 0)
        self.seqs: dict[tuple[int, int], int] = defaultdict(int)  # by rank and group
        if joined:
            for rank in range(1, size):
                self.hello(rank)

    def hello(
        self, rank: int, *, at: bytes | None = None, session: int = 0, ack: int = 0
    ) -> list[CoordinatorInstruction]:
        fields = {**write_identity(identity(rank, self.size)), "job": "job"}
        body = pack_fields({**fields, "session": session})
        hello = Message(Kind.HELLO, body=body, ack=ack)
        self.machine.receive(at or peer(rank), hello, self.now)
        return self.machine.take()

    def hear(
        self, rank: int, kind: Kind, **fields: Any
    ) -> list[CoordinatorInstruction]:
        """What the machine does when this replica says this."""
        message = Message(kind, **{"session": SESSION, **fields})
        if kind.numbered and rank:
            self.numbers[rank] += 1
            message.number = self.numbers[rank]
        self.machine.receive(peer(rank), message, self.now)
        return self.machine.take()

    def call(
        self,
        rank: int,
        operation: Operation = BARRIER,
        *,
        value: bytes = b"",
        group: int = WORLD,
        **more: Any,
    ) -> list[CoordinatorInstruction]:
        self.seqs[rank, group] += 1
        seq = more.pop("seq", self.seqs[rank, group])
        if rank == 0 and value:
            more["payload"] = Payload([value])
        code = operation.code
        return self.hear(
            *(rank, Kind.CONTRIBUTE),
            operation=code,
            group=group,
            seq=seq,
            body=value,
            **more,
        )

    def make(self, *colors: int | None, group: int = WORLD) -> list[int]:
        """Let all members of a group split it; give each new group's number.

        Args:
            colors: Those of the members, in their order.
            group: The group.
        """
        calls = self.machine.decisions.groups.find(group)
        assert calls is not None
        made = []
        for rank, color in zip(calls.roll.ranks, colors, strict=True):
            made = self.call(rank, SPLIT, value=pack_color(color, 0), group=group)
        return new_groups(made)


def new_groups(instructions: list[CoordinatorInstruction]) -> list[int]:
    """The numbers of the groups that members are told of."""
    numbers = set()
    for message in messages(instructions, Kind.OUTCOME):
        body = message.payload.parts[0] if message.payload else message.body
        numbers.add(parse_fields(body)["group"])
    return sorted(numbers - {None})


def told(instructions: list[CoordinatorInstruction]) -> dict[bytes, list[Kind]]:
    """The kinds of the messages to each peer."""
    kinds: dict[bytes, list[Kind]] = {}
    for each in instructions:
        if isinstance(each, Send):
            kinds.setdefault(each.peer, []).append(each.message.kind)
    return kinds


def messages(instructions: list[CoordinatorInstruction], kind: Kind) -> list[Message]:
    sends = [each for each in instructions if isinstance(each, Send)]
    return [send.message for send in sends if send.message.kind is kind]


def everybody(*kinds: Kind, size: int = 3) -> dict[bytes, list[Kind]]:
    return {peer(rank): list(kinds) for rank in range(size)}


def over(instructions: list[CoordinatorInstruction]) -> list[tuple[type, str, int]]:
    """What OVER says, without repetitions: the error and the last call."""
    ends = [parse_fields(m.body) for m in messages(instructions, Kind.OVER)]
    return list(
        dict.fromkeys(
            (type(from_fields(e)), str(from_fields(e)), e["after"]) for e in ends
        )
    )

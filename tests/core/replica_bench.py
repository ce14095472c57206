from typing import Any

from zcoll.errors import GroupError
from zcoll.operations import BARRIER, Operation
from zcoll.payload import Payload
from zcoll.protocol.events import (
    Contribution,
    Identity,
    ReplicaInstruction,
    Send,
    Timing,
)
from zcoll.protocol.failures import to_fields
from zcoll.protocol.link import Link
from zcoll.protocol.replica import Replica
from zcoll.wire import Kind, Message, pack_fields

SESSION = 77
TABLE = pack_fields({"replicas": [{"rank": 0, "host": "node", "pid": 7}]})
IDENTITY = Identity(1, 2, "host", 1001, 5001, "1.0", "3.11")


class Bench:
    """A replica's machine, and a rank 0 that says what a test wants it to say."""

    def __init__(self, *, joined: bool = True) -> None:
        self.replica = Replica(IDENTITY, "job", Timing(), Link(grants=True))
        self.now = 10.0
        self.number = 0
        if joined:
            self.replica.connected(self.now)
            self.hear(Kind.WELCOME)
            self.hear(Kind.READY, body=TABLE)
            self.replica.take()

    def hear(
        self, kind: Kind, *, session: int = SESSION, **fields: Any
    ) -> list[ReplicaInstruction]:
        """What the machine does when rank 0 says this."""
        message = Message(kind, session=session, **fields)
        if kind.numbered:
            self.number += 1
            message.number = self.number
        self.replica.receive(message, self.now)
        return self.replica.take()

    def refuse(self, refusal: object, reason: str = "why") -> list[ReplicaInstruction]:
        body = pack_fields({"refusal": refusal, "reason": reason})
        return self.hear(Kind.REJECT, session=0, body=body)

    def end(self, error: GroupError, after: int) -> list[ReplicaInstruction]:
        body = pack_fields({**to_fields(error), "after": after})
        return self.hear(Kind.OVER, body=body)

    def call(self, operation: Operation = BARRIER, value: bytes = b"") -> int:
        payload = Payload([value], stable=True) if value else None
        site = f"a.py:{self.replica.calling._groups[0].seq}"
        return self.replica.calling.call(
            Contribution(0, operation, 0, "", site, payload)
        )

    def tick(self, now: float) -> list[ReplicaInstruction]:
        self.now = now
        self.replica.tick(now)
        return self.replica.take()


def sent(instructions: list[ReplicaInstruction]) -> list[Message]:
    return [each.message for each in instructions if isinstance(each, Send)]


def kinds(instructions: list[ReplicaInstruction]) -> list[Kind]:
    return [message.kind for message in sent(instructions)]

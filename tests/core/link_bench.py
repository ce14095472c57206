from collections import deque

from zcoll.payload import Payload
from zcoll.protocol.link import Link
from zcoll.wire import Kind, Message, pack, parse

CHUNK, WINDOW = 10, 40


class End:
    """One end of a connection, and what it has handled."""

    def __init__(self, *, grants: bool) -> None:
        self.link = Link(grants=grants)
        self.arriving: deque[list[bytes]] = deque()
        self.before: list[list[bytes]] = []  # what has arrived already
        self.handled: list[int] = []
        self.payloads: dict[int, bytes] = {}

    def receive(self, frames: list[bytes]) -> None:
        self.before.append(frames)
        message = parse(frames)
        if not self.link.accept(message):
            return
        if message.kind not in (Kind.CHUNK, Kind.ACK):
            self.handled.append(message.seq)
        if message.payload is not None:
            assert message.seq not in self.payloads
            self.payloads[message.seq] = b"".join(message.payload.parts)


class Connection:
    """A replica's end and rank 0's, and the network between them."""

    def __init__(self) -> None:
        self.replica, self.root = End(grants=True), End(grants=False)
        self.resume()

    def other(self, end: End) -> End:
        return self.root if end is self.replica else self.replica

    def resume(self) -> None:
        """As HELLO and WELCOME do."""
        self.root.link.resume(self.replica.link.received)
        self.replica.link.resume(self.root.link.received)

    def cut(self) -> None:
        for end in (self.replica, self.root):
            end.link.suspend()
            end.arriving.clear()

    def transmit(self, end: End) -> int:
        sent = [
            [bytes(frame) for frame in pack(message)] for message in end.link.transmit()
        ]
        self.other(end).arriving.extend(sent)
        return len(sent)

    def settle(self) -> None:
        """Let everything arrive, and everything be acknowledged."""
        busy = True
        while busy:
            busy = False
            for end in (self.replica, self.root):
                busy |= bool(self.transmit(end))
                while end.arriving:
                    end.receive(end.arriving.popleft())
                    busy = True
        self.replica.link.acknowledge(self.root.link.received)
        self.root.link.acknowledge(self.replica.link.received)
        if self.transmit(self.replica) + self.transmit(self.root):
            self.settle()


def outcome(seq: int, *parts: bytes) -> Message:
    payload = Payload(list(parts), stable=True) if parts else None
    return Message(Kind.OUTCOME, seq=seq, payload=payload)


def contribution(seq: int, *parts: bytes) -> Message:
    payload = Payload(list(parts), stable=True) if parts else None
    return Message(Kind.CONTRIBUTE, seq=seq, payload=payload)

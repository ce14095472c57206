"""One end of the connection between rank 0 and a replica.

ZeroMQ loses what is on the way when a connection drops. So every message that
matters has a number in its direction, is kept until the other end acknowledges
it, and is sent again, in order, after a reconnect. The receiver takes each
number once, in order, and drops everything else.

Payloads above the inline limit follow their message in chunks of at most 1 MiB,
each numbered too, so a cut repeats only what is missing. At most ``WINDOW``
bytes of chunks are on the way at a time, and messages overtake chunks that are
not, so nothing waits behind a large payload. Rank 0 grants a replica's chunks
when it has room for them; its own outcomes need no grant.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from zcoll.errors import ProtocolError
from zcoll.payload import Payload
from zcoll.protocol.chunks import Assembly, Key, Sending
from zcoll.wire import Flag, Kind, Message, pack_sizes, parse, parse_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zcoll.payload import Buffer
    from zcoll.wire import Common

WINDOW = 8 * 1024 * 1024  # bytes of chunks sent and not acknowledged, at most
ACK_BYTES = 1024 * 1024  # bytes of chunks received after which an ACK goes at once

_PAYLOADS = (Kind.CONTRIBUTE, Kind.OUTCOME)  # whose body may be a small payload
_LAST = (Kind.BYE, Kind.OVER)  # after which there is nothing that acknowledges them


class _Packed:
    """A message that is kept as it went; it holds no data."""

    __slots__ = ("frame",)
    data = None

    def __init__(self, frame: bytes) -> None:
        self.frame = frame


class Link:
    """Numbers, keeps, cuts and joins the messages of one connection.

    Args:
        grants: Whether this end sends chunks only when the other end grants
            them: a replica does, rank 0 does not.
    """

    def __init__(self, *, grants: bool) -> None:
        self._grants = grants
        self._connected = False
        self._queue: deque[Message] = deque()  # not sent yet, without a number
        self._unacked: deque[Message | _Packed] = deque()  # sent and kept
        self._replay: deque[Message] = deque()  # to be sent once more
        self._sent = 0  # the last number given out
        self._acknowledged = 0  # the last one that the other end is known to have
        self._in_flight = 0  # bytes of chunks in _unacked
        self._waiting: dict[Key, Sending] = {}  # for a grant
        self._sending: deque[Sending] = deque()
        self._assembling: dict[Key, Assembly] = {}
        self._received = 0  # the last number taken in
        self._unreported = 0  # bytes of chunks received since the last ack sent
        self._ack_due = False

    # --- sending ----------------------------------------------------------

    def send(self, message: Message) -> None:
        """Queue a numbered message, with its payload if it has one."""
        payload = message.payload
        if payload is not None and payload.parts:
            if payload.inline:
                message.body = payload.parts[0]
            else:
                message.flags |= Flag.CHUNKED
                message.body = pack_sizes(payload.sizes)
                sending = Sending((message.group, message.seq), payload)
                if self._grants:
                    self._waiting[sending.key] = sending
                else:
                    self._sending.append(sending)
            message.payload = None
        self._queue.append(message)

    def grant(self, group: int, seq: int) -> None:
        """The other end has room for the payload of this call."""
        sending = self._waiting.pop((group, seq), None)
        if sending is not None:
            self._sending.append(sending)

    def withdraw(self, group: int, seq: int) -> None:
        """The call is decided: what is left of this end's payload is not needed."""
        key = (group, seq)
        self._waiting.pop(key, None)
        if self._sending:
            self._sending = deque(s for s in self._sending if s.key != key)

    def withdraw_all(self) -> None:
        """Nothing is sent any more of payloads that have not gone."""
        self._waiting.clear()
        self._sending.clear()

    def discard(self, group: int, seq: int) -> None:
        """The call is decided: the other end's unfinished payload is not needed."""
        self._assembling.pop((group, seq), None)

    def discard_after(self, group: int, seq: int) -> None:
        """No call after this one counts: nor do the other end's payloads."""
        for key in [k for k in self._assembling if k[0] == group and k[1] > seq]:
            del self._assembling[key]

    @property
    def silent(self) -> bool:
        """Whether nothing goes on the wire now."""
        if self._queue or self._ack_due or self._replay:
            return not self._connected
        if not self._sending:  # as it nearly always is
            return True
        return not self._connected or self._in_flight >= WINDOW

    def transmit(self) -> Sequence[Message]:
        """Give what must go on the wire now, in order."""
        if not self._connected:
            return ()
        out: list[Message] = []
        if self._replay:
            out.extend(self._replay)
            self._replay.clear()
        while self._queue:
            out.append(self._number(self._queue.popleft()))
        while self._sending and self._in_flight < WINDOW:
            chunk = self._sending[0].next_chunk()
            if chunk is None:
                self._sending.popleft()
            else:
                self._in_flight += len(chunk.data or b"")
                out.append(self._number(chunk))
        if self._ack_due and not out:  # else what goes tells it
            out.append(Message(Kind.ACK))
        for message in out:
            message.ack = self._received
        if out:
            self._unreported = 0
            self._ack_due = False
        return out

    def send_at_once(
        self, common: Common, rank: int, site: str, body: Buffer
    ) -> bytes | None:
        """Number a small message, if nothing has to go before it.

        Returns:
            Its frame, which the caller puts on the wire; or None.
        """
        if self._queue or self._replay or not self._connected:
            return None
        self._sent += 1
        frame = common.pack(rank, self._sent, self._received, site, body)
        self._unacked.append(_Packed(frame))
        self._unreported = 0
        self._ack_due = False
        return frame

    def _number(self, message: Message) -> Message:
        self._sent = message.number = self._sent + 1
        self._unacked.append(message)
        return message

    # --- receiving --------------------------------------------------------

    def accept(self, message: Message) -> bool:
        """Take in a message of the other end.

        A chunk that completes its payload gets it as ``payload``, and so does a
        message that holds a small one.

        Returns:
            Whether the message is to be handled: it is new, in order, and not a
            chunk in the middle of a payload.

        Raises:
            ProtocolError: It contradicts what came before.
        """
        if message.ack > self._acknowledged:
            self.acknowledge(message.ack)
        number, kind = message.number, message.kind
        if not number:
            return True
        if number != self._received + 1:
            return False  # seen already, or ahead of a replay that will bring it
        self._received = number
        if kind in _PAYLOADS and not message.flags:
            if message.body:
                message.payload = Payload([message.body], True)
        elif kind is Kind.CHUNK:
            return self._join(message)
        elif message.flags & Flag.CHUNKED:
            key = (message.group, message.seq)
            self._assembling[key] = Assembly(parse_sizes(message.body))
        elif kind in _LAST:
            self._ack_due = True  # the other end waits for it
        return True

    def expects(self, number: int, ack: int) -> bool:
        """Whether a message would be new and in order, and says nothing impossible."""
        return number == self._received + 1 and ack <= self._sent

    def take(self, number: int, ack: int) -> None:
        """Take in a message that is expected, and that the caller handles itself."""
        self._received = number
        if ack > self._acknowledged:
            self.acknowledge(ack)

    def _join(self, chunk: Message) -> bool:
        """Add a chunk to its payload; tell whether that is complete."""
        self._unreported += 0 if chunk.data is None else len(chunk.data)
        if self._unreported >= ACK_BYTES:
            self._ack_due = True
        key = (chunk.group, chunk.seq)
        assembly = self._assembling.get(key)
        if assembly is None or not assembly.add(chunk):
            return False
        del self._assembling[key]
        # Nobody else has this memory, so it may be sent on without a copy.
        chunk.payload = Payload(list(assembly.parts), stable=True, owned=True)
        return True

    def acknowledge(self, number: int) -> None:
        """The other end has received everything up to this number.

        Raises:
            ProtocolError: Nothing of that number was ever sent.
        """
        if number > self._sent:
            raise ProtocolError(f"message {number} acknowledged of {self._sent} sent")
        while self._acknowledged < number:  # what is kept has all numbers after it
            self._acknowledged += 1
            kept = self._unacked.popleft()
            if kept.data is not None:
                self._in_flight -= len(kept.data)

    # --- the connection ---------------------------------------------------

    def resume(self, received: int) -> None:
        """A connection stands, and the other end has got up to this number."""
        self.acknowledge(received)
        self._replay = deque(
            parse([kept.frame]) if isinstance(kept, _Packed) else kept
            for kept in self._unacked
        )
        self._connected = True

    def suspend(self) -> None:
        """The connection is gone: keep everything for the next one."""
        self._connected = False
        self._replay.clear()

    def close(self) -> None:
        """No connection will stand again: nothing more is sent or kept."""
        self.suspend()
        for kept in (self._queue, self._unacked, self._sending):
            kept.clear()
        self._acknowledged = self._sent
        self._waiting.clear()
        self._assembling.clear()
        self._in_flight = 0

    @property
    def received(self) -> int:
        """The last number received in order, as HELLO and WELCOME tell it."""
        return self._received

    @property
    def acknowledged(self) -> int:
        """The last number that the other end is known to have."""
        return self._acknowledged

    @property
    def owes_payloads(self) -> bool:
        """Whether chunks are still to be sent."""
        return bool(self._waiting or self._sending)

    @property
    def idle(self) -> bool:
        """Whether everything that was to be sent has been acknowledged."""
        return not (self._unacked or self._queue or self._sending)


class LocalLink(Link):
    """The link between rank 0's replica and the coordinator: the same process.

    Messages keep their payloads, and nothing needs a number.
    """

    def __init__(self) -> None:
        super().__init__(grants=False)
        self._connected = True

    def send(self, message: Message) -> None:
        """Queue a message for the other side."""
        self._queue.append(message)

    def accept(self, message: Message) -> bool:
        """Take in a message of the other side: each is handled."""
        return True

    @property
    def silent(self) -> bool:
        """Whether the other side has nothing to handle."""
        return not self._queue

    def transmit(self) -> Sequence[Message]:
        """Give what the other side has to handle, in order."""
        out = list(self._queue)
        self._queue.clear()
        return out

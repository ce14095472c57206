from collections import deque
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zcoll.errors import ProtocolError
from zcoll.protocol import link
from zcoll.protocol.link import Link, LocalLink
from zcoll.wire import (
    Flag,
    Kind,
    Message,
    Payload,
    pack,
    pack_place,
    pack_sizes,
    parse,
)

CHUNK, WINDOW = 10, 40


@pytest.fixture(autouse=True, scope="module")
def _small_limits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(link, "CHUNK_SIZE", CHUNK)
        patch.setattr(link, "WINDOW", WINDOW)
        patch.setattr(link, "ACK_BYTES", 20)
        patch.setattr("zcoll.wire.INLINE_LIMIT", 8)
        yield


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


# --- numbers ----------------------------------------------------------------------


def test_messages_arrive_in_order_and_once() -> None:
    connection = Connection()
    for seq in (1, 2, 3):
        connection.replica.link.send(contribution(seq, b"abc"))
    connection.settle()
    for frames in list(connection.root.before):
        connection.root.receive(frames)
    assert connection.root.handled == [1, 2, 3]
    assert connection.root.payloads == {1: b"abc", 2: b"abc", 3: b"abc"}
    assert connection.replica.link.idle


def test_a_gap_is_not_taken_in() -> None:
    receiver = Link(grants=False)
    assert not receiver.accept(Message(Kind.CONTRIBUTE, number=2))
    assert receiver.received == 0
    assert receiver.accept(Message(Kind.CONTRIBUTE, number=1))
    assert receiver.received == 1


def test_nothing_goes_out_without_a_connection() -> None:
    sender = Link(grants=True)
    sender.send(contribution(1))
    assert not list(sender.transmit())
    assert not sender.idle
    sender.resume(0)
    assert [message.number for message in sender.transmit()] == [1]


def test_what_is_lost_comes_again_and_what_has_arrived_does_not() -> None:
    connection = Connection()
    for seq in (1, 2, 3):
        connection.replica.link.send(contribution(seq))
    connection.transmit(connection.replica)
    connection.root.receive(connection.root.arriving.popleft())
    connection.cut()
    connection.replica.link.send(contribution(4))
    connection.resume()
    again = list(connection.replica.link.transmit())
    assert [(m.seq, m.number) for m in again] == [(2, 2), (3, 3), (4, 4)]


def test_an_acknowledgement_rides_on_everything() -> None:
    connection = Connection()
    connection.root.link.send(outcome(1))
    connection.settle()
    connection.replica.link.send(contribution(2))
    (message,) = connection.replica.link.transmit()
    assert message.ack == 1


@pytest.mark.parametrize("kind", [Kind.BYE, Kind.OVER])
def test_an_ending_is_acknowledged_at_once(kind: Kind) -> None:
    receiver = Link(grants=False)
    receiver.resume(0)
    receiver.accept(Message(kind, number=1))
    (ack,) = receiver.transmit()
    assert (ack.kind, ack.ack) == (Kind.ACK, 1)
    assert not list(receiver.transmit())


def test_an_acknowledgement_of_the_future_is_a_protocol_error() -> None:
    sender = Link(grants=True)
    with pytest.raises(ProtocolError, match="message 1 acknowledged of 0 sent"):
        sender.accept(Message(Kind.BEACON, ack=1))
    with pytest.raises(ProtocolError):
        sender.resume(1)


def test_acknowledged_grows_with_progress() -> None:
    sender = Link(grants=True)
    sender.resume(0)
    for seq in (1, 2):
        sender.send(contribution(seq))
    assert len(list(sender.transmit())) == 2
    assert sender.acknowledged == 0
    sender.acknowledge(1)
    assert sender.acknowledged == 1
    sender.acknowledge(2)
    assert (sender.acknowledged, sender.idle) == (2, True)


# --- payloads ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "parts",
    [(b"x" * 8,), (b"x" * 9,), (b"a", b"b"), (b"a" * 25, b"", b"b" * 10), (b"", b"x")],
)
def test_payloads_arrive_whole(parts: tuple[bytes, ...]) -> None:
    connection = Connection()
    connection.root.link.send(outcome(1, *parts))
    connection.replica.link.send(contribution(1, *parts))
    connection.replica.link.grant(0, 1)
    connection.settle()
    assert connection.root.payloads == {1: b"".join(parts)}
    assert connection.replica.payloads == {1: b"".join(parts)}
    assert connection.root.link.idle


def test_a_replica_waits_for_the_grant() -> None:
    connection = Connection()
    sender = connection.replica.link
    sender.send(contribution(1, b"x" * 30))
    sender.send(contribution(2))
    assert [m.kind for m in sender.transmit()] == [Kind.CONTRIBUTE] * 2
    assert sender.owes_payloads
    sender.grant(0, 7)
    sender.grant(0, 1)
    assert [m.number for m in sender.transmit()] == [3, 4, 5]
    sender.grant(0, 1)
    assert not list(sender.transmit())


def test_chunks_wait_for_the_window_and_are_overtaken() -> None:
    connection = Connection()
    root = connection.root.link
    root.send(outcome(1, b"x" * 100))
    kinds = [m.kind for m in root.transmit()]
    assert kinds == [Kind.OUTCOME] + [Kind.CHUNK] * (WINDOW // CHUNK)
    root.send(outcome(2))
    assert [m.seq for m in root.transmit()] == [2]
    root.acknowledge(3)
    assert [m.kind for m in root.transmit()] == [Kind.CHUNK] * 2


def test_chunks_are_acknowledged_now_and_then() -> None:
    connection = Connection()
    connection.root.link.send(outcome(1, b"x" * 100))
    connection.transmit(connection.root)
    acks = []
    while connection.replica.arriving:
        connection.replica.receive(connection.replica.arriving.popleft())
        acks += [m.ack for m in connection.replica.link.transmit()]
    assert acks == [3, 5]


def test_unstable_memory_is_copied_when_it_is_cut() -> None:
    memory = bytearray(b"x" * 20)
    sender = Link(grants=False)
    sender.resume(0)
    sender.send(Message(Kind.OUTCOME, payload=Payload([memory])))
    _, first, _ = sender.transmit()
    memory[:] = b"y" * 20
    assert first.data == b"x" * 10


def test_what_is_withdrawn_is_not_sent() -> None:
    sender = Link(grants=True)
    sender.resume(0)
    for seq in (1, 2, 3):
        sender.send(contribution(seq, b"x" * 50))
    for seq in (2, 3):
        sender.grant(0, seq)
    for seq in (1, 2):
        sender.withdraw(0, seq)
    assert {m.seq for m in sender.transmit() if m.kind is Kind.CHUNK} == {3}


def test_what_is_discarded_is_dropped_when_it_comes() -> None:
    connection = Connection()
    for seq in (1, 2, 3):
        connection.root.link.send(outcome(seq, b"x" * 10))
    connection.transmit(connection.root)
    for _ in range(3):
        connection.replica.receive(connection.replica.arriving.popleft())
    connection.replica.link.discard(0, 1)
    connection.replica.link.discard_after(0, 2)
    connection.settle()
    assert list(connection.replica.payloads) == [2]


def test_a_closed_link_keeps_nothing() -> None:
    sender = Link(grants=True)
    sender.resume(0)
    sender.send(contribution(1, b"x" * 50))
    sender.accept(Message(Kind.OUTCOME, flags=1, number=1, body=pack_sizes([9])))
    assert list(sender.transmit())
    sender.close()
    assert sender.idle
    assert not sender.owes_payloads
    assert not list(sender.transmit())
    chunk = Message(Kind.CHUNK, number=2, body=pack_place(0, 0), data=b"x" * 9)
    assert not sender.accept(chunk)


@pytest.mark.parametrize(
    ("place", "data", "why"),
    [
        ((0, 5), b"x", "out of order"),
        ((1, 0), b"x", "out of order"),
        ((0, 0), b"", "a chunk of 0 bytes"),
        ((0, 0), b"x" * 13, "a chunk of 13 bytes does not fit"),
    ],
)
def test_chunks_that_do_not_fit_are_refused(
    place: tuple[int, int], data: bytes, why: str
) -> None:
    receiver = Link(grants=False)
    sizes = pack_sizes([12, 3])
    receiver.accept(
        Message(Kind.CONTRIBUTE, flags=Flag.CHUNKED, number=1, seq=1, body=sizes)
    )
    with pytest.raises(ProtocolError, match=why):
        receiver.accept(
            Message(Kind.CHUNK, number=2, seq=1, body=pack_place(*place), data=data)
        )


def test_a_claimed_size_allocates_nothing() -> None:
    receiver = Link(grants=False)
    sizes = pack_sizes([2**63, 2**63])
    message = Message(Kind.CONTRIBUTE, flags=Flag.CHUNKED, number=1, body=sizes)
    assert receiver.accept(message)


def test_the_local_link_hands_over_payloads_as_they_are() -> None:
    local = LocalLink()
    message = contribution(1, b"x" * 1000)
    payload = message.payload
    local.send(message)
    assert not local.idle
    (handed,) = local.transmit()
    assert handed.payload is payload
    assert local.accept(handed)
    assert local.idle


# --- any interleaving -------------------------------------------------------------

ACTIONS = st.one_of(
    st.tuples(st.just("send"), st.booleans(), st.lists(st.integers(0, 35), max_size=3)),
    st.tuples(st.just("arrive"), st.booleans(), st.integers(1, 9)),
    st.tuples(st.just("again"), st.booleans(), st.integers(0, 99)),
    st.tuples(st.just("grant"), st.integers(1, 9)),
    st.tuples(st.just("transmit"), st.booleans()),
    st.tuples(st.just("cut")),
)


@given(st.lists(ACTIONS, max_size=60))
def test_through_cuts_and_duplicates_everything_arrives_once(
    actions: list[tuple[object, ...]],
) -> None:
    connection = Connection()
    sent: dict[bool, dict[int, bytes]] = {False: {}, True: {}}
    for action in actions:
        _act(connection, sent, action)
    connection.cut()
    connection.resume()
    for seq in sent[True]:
        connection.replica.link.grant(0, seq)
    connection.settle()
    for end, by_replica in ((connection.root, True), (connection.replica, False)):
        expected = sent[by_replica]
        assert end.handled == list(expected)
        assert end.payloads == {seq: value for seq, value in expected.items() if value}
        assert end.link.idle


def _act(
    connection: Connection,
    sent: dict[bool, dict[int, bytes]],
    action: tuple[object, ...],
) -> None:
    match action:
        case ("send", bool(by_replica), list(sizes)):
            end = connection.replica if by_replica else connection.root
            seq = len(sent[by_replica]) + 1
            parts = [bytes([seq]) * size for size in sizes]
            parts = parts if any(parts) else []
            make = contribution if by_replica else outcome
            end.link.send(make(seq, *parts))
            sent[by_replica][seq] = b"".join(parts)
        case ("arrive", bool(at_replica), int(count)):
            end = connection.replica if at_replica else connection.root
            for _ in range(min(count, len(end.arriving))):
                end.receive(end.arriving.popleft())
        case ("again", bool(at_replica), int(which)):
            end = connection.replica if at_replica else connection.root
            if end.before:
                end.receive(end.before[which % len(end.before)])
        case ("grant", int(seq)):
            connection.replica.link.grant(0, seq)
        case ("transmit", bool(by_replica)):
            connection.transmit(connection.replica if by_replica else connection.root)
        case _:
            connection.cut()
            connection.resume()

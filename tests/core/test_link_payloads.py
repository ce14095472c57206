import pytest
from core.link_bench import CHUNK, WINDOW, Connection, contribution, outcome

from zcoll.errors import ProtocolError
from zcoll.payload import Payload
from zcoll.protocol.link import Link, LocalLink
from zcoll.wire import Flag, Kind, Message, pack_place, pack_sizes

pytestmark = pytest.mark.usefixtures("_small_limits")


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


def test_what_has_arrived_in_chunks_is_sent_on_without_a_copy() -> None:
    connection = Connection()
    link = connection.root.link
    sizes = pack_sizes([3 * CHUNK])
    link.accept(
        Message(Kind.CONTRIBUTE, flags=Flag.CHUNKED, number=1, seq=1, body=sizes)
    )
    for turn in range(3):
        chunk = Message(Kind.CHUNK, number=2 + turn, seq=1, data=b"x" * CHUNK)
        chunk.body = pack_place(0, turn * CHUNK)
        link.accept(chunk)
    assert chunk.payload is not None
    (part,) = chunk.payload.parts
    link.send(Message(Kind.OUTCOME, seq=1, payload=chunk.payload))
    (head, *chunks) = link.transmit()
    assert head.kind is Kind.OUTCOME
    for each in chunks:
        assert isinstance(each.data, memoryview)
        assert each.data.obj is part


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

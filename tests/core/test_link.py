import pytest
from core.link_bench import Connection, contribution, outcome
from hypothesis import given
from hypothesis import strategies as st

from zcoll.errors import ProtocolError
from zcoll.protocol.link import Link
from zcoll.wire import (
    Kind,
    Message,
)

pytestmark = pytest.mark.usefixtures("_small_limits")


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

import pytest
from core.replica_bench import IDENTITY, SESSION

from zcoll.errors import ProtocolError
from zcoll.protocol.admission import RETRY, Admission
from zcoll.protocol.events import Timing
from zcoll.protocol.identities import read_identity
from zcoll.protocol.link import Link
from zcoll.protocol.membership import Refusal
from zcoll.wire import Kind, Message, parse_fields

TIMING = Timing(reconnect_window=5.0, taken_limit=1.0)


def admission() -> Admission:
    return Admission(IDENTITY, "job", TIMING, Link(grants=True))


def admitted() -> Admission:
    made = admission()
    made.connect(10.0)
    made.welcome(Message(Kind.WELCOME, session=SESSION))
    return made


def kind(message: Message | None) -> Kind | None:
    return None if message is None else message.kind


def test_hello_says_who_it_is_and_what_it_has() -> None:
    made = admitted()
    made._link.accept(Message(Kind.READY, number=1))
    made.disconnect(11.0, joined=True)
    hello = made.connect(12.0)
    fields = parse_fields(hello.body)
    assert (hello.kind, hello.ack) == (Kind.HELLO, 1)
    assert read_identity(fields) == IDENTITY
    assert (fields["job"], fields["session"]) == ("job", SESSION)


def test_an_unanswered_hello_is_said_again() -> None:
    made = admission()
    made.connect(10.0)
    assert made.due(10.9) is None
    assert kind(made.due(11.0)) is Kind.HELLO
    assert made.due(11.9) is None
    assert kind(made.due(12.0)) is Kind.HELLO


def test_once_it_is_welcome_it_gives_signs_of_life() -> None:
    made = admitted()
    assert kind(made.due(20.0)) is Kind.BEACON
    assert made.due(20.9) is None
    made.disconnect(21.0, joined=True)
    assert made.due(21.1) is None


def test_a_late_word_of_an_old_connections_end_is_no_end() -> None:
    """The new one stands already, and no other word of it will come."""
    made = admitted()
    made.connect(21.0)
    made.disconnect(21.0, joined=True)
    assert kind(made.due(21.25)) is Kind.HELLO
    made.welcome(Message(Kind.WELCOME, session=SESSION))
    assert made.connected
    assert not made.lost(99.0)
    assert kind(made.due(99.0)) is Kind.BEACON


def test_another_groups_welcome_makes_no_sense() -> None:
    with pytest.raises(ProtocolError, match="another group"):
        admitted().welcome(Message(Kind.WELCOME, session=SESSION + 1))


def test_the_window_starts_with_the_first_of_several_cuts() -> None:
    made = admitted()
    made.disconnect(11.0, joined=True)
    made.connect(13.0)
    made.disconnect(14.0, joined=True)
    assert not any(made.lost(11.0 + step / 4) for step in range(20))
    assert made.lost(16.0)


def test_a_welcome_ends_the_window() -> None:
    made = admitted()
    made.disconnect(11.0, joined=True)
    made.connect(13.0)
    made.welcome(Message(Kind.WELCOME, session=SESSION))
    assert not made.lost(99.0)


def test_before_it_has_joined_there_is_no_window() -> None:
    made = admitted()
    made.disconnect(11.0, joined=False)
    assert not made.lost(99.0)
    assert made.session == 0


@pytest.mark.parametrize(
    ("refusal", "first", "later"),
    [
        (Refusal.FINAL, Refusal.FINAL, Refusal.FINAL),
        (Refusal.LOST, Refusal.LOST, Refusal.LOST),
        (Refusal.UNKNOWN, Refusal.UNKNOWN, Refusal.UNKNOWN),
        (Refusal.TAKEN, None, Refusal.TAKEN),
        (Refusal.CLOSING, None, None),
    ],
)
def test_what_passes_is_asked_again(
    refusal: Refusal, first: Refusal | None, later: Refusal | None
) -> None:
    made = admission()
    made.connect(9.0)
    fields = {"refusal": refusal.value}
    assert made.rejected(fields, 10.0) is first
    if first is None:
        assert made.due(10.0 + RETRY - 0.01) is None
        assert kind(made.due(10.0 + RETRY)) is Kind.HELLO
    assert made.rejected(fields, 11.0) is later


def test_a_rank_that_was_taken_and_given_may_be_taken_again() -> None:
    made = admission()
    fields = {"refusal": Refusal.TAKEN.value}
    assert made.rejected(fields, 10.0) is None
    made.welcome(Message(Kind.WELCOME, session=SESSION))
    assert made.rejected(fields, 99.0) is None


@pytest.mark.parametrize("refusal", [None, "perhaps", [], 3])
def test_refusals_of_no_known_kind_make_no_sense(refusal: object) -> None:
    with pytest.raises(ProtocolError, match="no known kind"):
        admission().rejected({"refusal": refusal}, 10.0)


def test_replicas_differ_by_their_identity() -> None:
    other = Admission(IDENTITY._replace(rank=2), "job", TIMING, Link(grants=True))
    assert other.connect(1.0).body != admission().connect(1.0).body

import re
from collections.abc import Iterable
from typing import Any

import pytest

from zcoll.errors import ProtocolError
from zcoll.protocol.events import LOCAL, Identity, Note, Send, Timing
from zcoll.protocol.identities import read_identity, write_identity
from zcoll.protocol.members import State
from zcoll.protocol.membership import LAST_WORDS, Membership, Refusal
from zcoll.wire import Kind, Message, pack_fields, parse_fields

SESSION = 77
ONE, TWO = b"peer 1", b"peer 2"


def identity(rank: int, size: int = 3, **changed: Any) -> Identity:
    known = Identity(rank, size, "host", 1000 + rank, 5000 + rank, "1.0", "3.11")
    return known._replace(**changed)


def membership(size: int = 3) -> Membership:
    return Membership(identity(0, size), SESSION, "job", Timing())


def hello(
    who: Identity, *, job: object = "job", session: object = 0, ack: int = 0
) -> Message:
    fields = {**write_identity(who), "job": job, "session": session}
    return Message(Kind.HELLO, body=pack_fields(fields), ack=ack)


def join(group: Membership, who: Identity, peer: bytes, now: float = 1.0) -> Message:
    """What rank 0 answers, first."""
    return answers(group.hello(peer, hello(who), now))[0]


def answers(instructions: Iterable[Send | Note]) -> list[Message]:
    return [each.message for each in instructions if isinstance(each, Send)]


def refusal(message: Message) -> tuple[Refusal, str]:
    assert message.kind is Kind.REJECT
    fields = parse_fields(message.body)
    return Refusal(fields["refusal"]), fields["reason"]


def test_rank_0_is_there_from_the_start() -> None:
    group = membership()
    assert group.ranks(State.PRESENT) == [0]
    assert group.absent == [1, 2]
    assert group.by_peer(LOCAL) is group.members[0]
    assert not group.complete


def test_alone_it_is_complete() -> None:
    assert membership(1).complete


def test_the_group_is_complete_when_everybody_has_come() -> None:
    group = membership()
    welcome = join(group, identity(2), TWO)
    assert (welcome.kind, welcome.session, welcome.ack) == (Kind.WELCOME, SESSION, 0)
    assert (group.absent, group.complete) == ([1], False)
    join(group, identity(1), ONE)
    assert (group.absent, group.complete) == ([], True)
    member = group.by_peer(ONE)
    assert member is group.members[1]
    assert str(member) == "replica 1 (host, pid 1001)"


@pytest.mark.parametrize(
    ("who", "job", "session", "reason"),
    [
        (identity(1), "other", 0, "another job"),
        (identity(1, 4), "job", 0, "was told num_replicas=3, replica 1 num_replicas=4"),
        (identity(0), "job", 0, r"rank 0 is taken by replica 0 \(host, pid 1000\)"),
        (identity(3), "job", 0, r"rank 3 is not in 0\.\.2"),
        (identity(-2), "job", 0, r"rank -2 is not in 0\.\.2"),
        (identity(1), "job", 78, "rank 0 was started again"),
        (identity(1), "job", [], "rank 0 was started again"),
        (identity(1), None, 0, "another job"),
    ],
)
def test_who_cannot_come_in_is_told_why(
    who: Identity, job: object, session: object, reason: str
) -> None:
    group = membership()
    reject, note = group.hello(ONE, hello(who, job=job, session=session), 1.0)
    assert isinstance(reject, Send)
    assert isinstance(note, Note)
    kind, text = refusal(reject.message)
    assert kind is Refusal.FINAL
    assert re.search(reason, text)
    assert note.topic == "refused"
    assert group.absent == [1, 2]


def test_a_rank_that_is_taken_may_be_asked_for_again() -> None:
    group = membership()
    join(group, identity(1), ONE)
    other = identity(1, pid=9, incarnation=9)
    probe, reject = answers(group.hello(TWO, hello(other), 2.0))
    assert probe.kind is Kind.WAITING
    assert refusal(reject)[0] is Refusal.TAKEN
    group.unreachable(ONE, 2.1)
    assert join(group, other, TWO).kind is Kind.WELCOME
    assert str(group.members[1]) == "replica 1 (host, pid 9)"


def test_a_group_that_ends_here_is_worth_waiting_for() -> None:
    group = membership(2)
    join(group, identity(1, 2), ONE)
    group.closing = True
    again = group.hello(TWO, hello(identity(1, 2, incarnation=9)), 2.0)
    instructions = list(again)
    assert len(instructions) == 1, "it is no news for the log"
    assert refusal(answers(instructions)[0])[0] is Refusal.CLOSING


def test_who_was_given_up_does_not_come_back() -> None:
    group = membership(2)
    join(group, identity(1, 2), ONE)
    group.dismiss(group.members[1], State.LOST)
    assert refusal(join(group, identity(1, 2), TWO))[0] is Refusal.LOST


def test_who_has_left_is_told_that_its_goodbye_has_arrived() -> None:
    group = membership(2)
    join(group, identity(1, 2), ONE)
    group.members[1].link.accept(Message(Kind.BYE, number=1))
    group.dismiss(group.members[1], State.LEFT)
    (welcome,) = answers(group.hello(TWO, hello(identity(1, 2)), 2.0))
    assert (welcome.kind, welcome.session, welcome.ack) == (Kind.WELCOME, SESSION, 1)
    assert group.by_peer(TWO) is None
    assert group.ranks(State.LEFT) == [1]


def test_before_the_group_is_complete_a_lost_connection_frees_the_rank() -> None:
    group = membership()
    join(group, identity(1), ONE)
    group.unreachable(ONE, 2.0)
    assert group.absent == [1, 2]
    assert group.by_peer(ONE) is None
    assert group.overdue(100.0) == []


def test_afterwards_it_may_come_back_within_the_window() -> None:
    group = membership(2)
    join(group, identity(1, 2), ONE)
    group.unreachable(ONE, 10.0)
    group.unreachable(ONE, 11.0)
    assert group.overdue(11.9) == []
    assert group.overdue(12.0) == [group.members[1]]
    back = list(group.hello(TWO, hello(identity(1, 2), session=SESSION), 11.95))
    assert answers(back)[0].kind is Kind.WELCOME
    assert group.by_peer(TWO) is group.members[1]
    assert group.overdue(100.0) == []


def test_a_new_connection_takes_over_from_the_old_one() -> None:
    group = membership(2)
    join(group, identity(1, 2), ONE)
    join(group, identity(1, 2), TWO)
    assert group.by_peer(ONE) is None
    group.unreachable(ONE, 3.0)
    assert group.members[1].cut is None


def test_those_who_wait_are_told_once_a_second_for_whom() -> None:
    group = membership()
    join(group, identity(2), TWO)
    told = list(group.tick(10.0))
    assert [send.peer for send in told] == [TWO]
    assert parse_fields(told[0].message.body) == {"missing": [1]}
    assert list(group.tick(10.9)) == []
    assert len(list(group.tick(11.0))) == 1
    join(group, identity(1), ONE)
    assert list(group.tick(20.0)) == []


def test_the_table_says_who_is_there() -> None:
    group = membership()
    join(group, identity(2), TWO)
    assert group.table() == [
        {"rank": 0, "host": "host", "pid": 1000, "package": "1.0"},
        {"rank": 2, "host": "host", "pid": 1002, "package": "1.0"},
    ]


def test_identities_come_back() -> None:
    assert read_identity(write_identity(identity(2))) == identity(2)


@pytest.mark.parametrize("name", list(write_identity(identity(1))))
@pytest.mark.parametrize("value", [None, True, 1.5, [], {}])
def test_identities_that_are_none_are_refused(name: str, value: object) -> None:
    with pytest.raises(ProtocolError, match=f"a HELLO with {name}="):
        read_identity({**write_identity(identity(1)), name: value})


def test_long_names_are_cut() -> None:
    fields = {**write_identity(identity(1)), "host": "h" * 1000}
    assert read_identity(fields).host == "h" * 256


def test_it_is_not_complete_while_the_holder_of_a_rank_may_be_dead() -> None:
    """Somebody else asks for its rank; then it is found gone, and the other comes."""
    group = membership()
    join(group, identity(1), ONE)
    other = identity(1, incarnation=6)
    probe, refused = answers(group.hello(b"other", hello(other), 2.0))
    assert (probe.kind, refusal(refused)[0]) == (Kind.WAITING, Refusal.TAKEN)
    assert join(group, identity(2), TWO, 2.0).kind is Kind.WELCOME
    assert (group.complete, group.absent) == (False, [1])
    group.unreachable(ONE, 2.1)
    assert (group.complete, group.absent) == (False, [1])
    assert join(group, other, b"other", 2.3).kind is Kind.WELCOME
    assert (group.complete, group.absent) == (True, [])


def test_the_holder_of_a_rank_keeps_it_by_a_sign_of_life() -> None:
    group = membership()
    join(group, identity(1), ONE)
    list(group.hello(b"other", hello(identity(1, incarnation=6)), 2.0))
    join(group, identity(2), TWO, 2.0)
    group.settle(group.members[1], 2.01)  # it may have sent that before its end
    assert not group.complete
    group.settle(group.members[1], 2.0 + LAST_WORDS)
    assert (group.complete, group.absent) == (True, [])


def test_it_is_not_complete_until_it_is_known_whose_connection_has_ended() -> None:
    group = membership()
    join(group, identity(1), ONE)
    group.doubted = 2.0
    join(group, identity(2), TWO, 2.01)
    list(group.tick(2.02))
    assert not group.complete
    list(group.tick(2.0 + LAST_WORDS))
    assert group.complete


def test_strangers_who_come_and_go_do_not_keep_it_from_being_complete() -> None:
    group = membership()
    group.doubted = 1.9
    join(group, identity(1), ONE)
    join(group, identity(2), TWO, 2.0)
    for step in range(1, 3):
        group.doubted = 2.0 + 0.1 * step
        list(group.tick(group.doubted))
        assert not group.complete
    group.doubted = 2.0 + LAST_WORDS
    list(group.tick(group.doubted))
    assert group.complete

import pytest
from core.calls_bench import message

from zcoll.errors import ProtocolError
from zcoll.operations import BARRIER, BROADCAST, by_code
from zcoll.protocol.roll import Roll


def _call(roll: Roll, rank: int, seq: int) -> None:
    roll.note(rank, seq, BARRIER, 0, "", "")


def test_a_groups_order_is_its_own() -> None:
    roll = Roll([7, 2, 5])
    assert 2 in roll
    assert 0 not in roll
    assert roll.expected(1) == [7, 2, 5]
    _call(roll, 2, 1)
    assert roll.missing(1) == [5, 7], "people read ranks in order"


@pytest.mark.parametrize("seq", [0, 1, 3])
def test_calls_come_one_after_the_other(seq: int) -> None:
    roll = Roll([0, 1])
    _call(roll, 1, 1)
    with pytest.raises(ProtocolError, match=f"call {seq} of replica 1 is out of order"):
        _call(roll, 1, seq)


def test_nobody_calls_after_it_has_left() -> None:
    roll = Roll([0, 1])
    _call(roll, 1, 1)
    roll.left[1] = 1
    with pytest.raises(ProtocolError, match="out of order"):
        _call(roll, 1, 2)


def test_who_has_left_is_expected_for_what_it_called_before() -> None:
    roll = Roll([3, 1, 2])
    for seq in (1, 2):
        _call(roll, 1, seq)
    roll.left[1] = 2
    assert [roll.expected(seq) for seq in (1, 2, 3)] == [[3, 1, 2], [3, 1, 2], [3, 2]]
    assert [roll.missing(seq) for seq in (1, 2, 3)] == [[2, 3]] * 3


def test_who_still_makes_calls_is_told_once_with_the_first_call_that_shows_it() -> None:
    roll = Roll([3, 1, 2])
    assert roll.news(1) is None
    roll.left[1] = 2
    assert roll.news(2) is None, "that call is still its own"
    assert roll.news(3) == [0, 2], "as ranks of the group"
    assert roll.news(4) is None
    roll.left[3] = 4
    assert roll.news(5) == [2]


def test_the_last_call_is_told_with_its_group_tag_and_place() -> None:
    roll = Roll([0, 1])
    assert roll.last_call(0, "") == roll.last_call(9, "") == "nothing yet"
    made = message(BROADCAST, root=1, site="a.py:3 f")
    made.tag = "w"
    roll.note(0, made.seq, by_code(made.operation), made.root, made.tag, made.site)
    assert roll.last_call(0, "") == "broadcast(root=1, tag='w'), call 1 (a.py:3 f)"
    _call(roll, 0, 2)
    assert roll.last_call(0, "g") == "barrier(), call 2 of group 'g'"


def test_who_has_left_or_closed_is_done() -> None:
    roll = Roll([0, 1, 2])
    roll.left[0] = 0
    roll.closed.add(1)
    assert [roll.is_done(rank) for rank in range(3)] == [True, True, False]

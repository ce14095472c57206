from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zcoll.errors import CollectiveError, ProtocolError
from zcoll.operations import DUP, GROUP, SPLIT, Makes, Operation
from zcoll.payload import Payload
from zcoll.protocol.plans import (
    MAX_NAME,
    Plan,
    check_plan,
    pack_color,
    pack_ranks,
    plan_groups,
)
from zcoll.protocol.roll import Roll
from zcoll.protocol.steps import Call
from zcoll.wire import pack_fields

COLORS = st.none() | st.integers(-2, 2) | st.sampled_from(["a", "b", "1"])


def _plan(
    operation: Operation,
    given: dict[int, bytes],
    *,
    left: dict[int, int] | None = None,
    parent: str = "",
) -> list[Plan]:
    roll = Roll(list(given))
    roll.left = left or {}
    present = roll.expected(7)
    call = Call(7, operation, 0, "", len(present), list(given))
    call.payloads = {rank: Payload([given[rank]]) for rank in present if given[rank]}
    for payload in call.payloads.values():
        assert operation.makes is not None
        check_plan(operation.makes, payload, len(roll.ranks))
    return plan_groups(call, parent, roll)


def _split(
    colors: dict[int, tuple[int | str | None, int]], **more: Any
) -> dict[str, list[int]]:
    packed = {rank: pack_color(*given) for rank, given in colors.items()}
    return {plan.name: plan.ranks for plan in _plan(SPLIT, packed, **more)}


def test_a_split_is_in_the_order_of_keys_then_of_ranks() -> None:
    colors: dict[int, tuple[int | str | None, int]] = {
        6: (1, 0),
        0: ("odd", 5),
        4: (1, -3),
        2: (None, 0),
        1: ("odd", 5),
        3: (1, 0),
    }
    assert _split(colors) == {
        "split of the world, call 7, color 1": [4, 6, 3],
        "split of the world, call 7, color 'odd'": [0, 1],
    }


def test_a_number_and_its_text_are_different_colors() -> None:
    assert sorted(_split({0: (1, 0), 1: ("1", 0), 2: (1, 0)}).values()) == [[0, 2], [1]]


@given(st.lists(st.tuples(COLORS, st.integers(-3, 3)), min_size=1, max_size=8))
def test_splits_as_in_mpi(given: list[tuple[int | str | None, int]]) -> None:
    groups = _split(dict(enumerate(given)))
    expected = [
        [
            rank
            for _, rank in sorted(
                (key, r) for r, (c, key) in enumerate(given) if c == color
            )
        ]
        for color in {color for color, _ in given if color is not None}
    ]
    assert sorted(groups.values()) == sorted(expected)


def test_nobody_has_a_color() -> None:
    assert _split({0: (None, 0), 1: (None, 0)}) == {}


def test_who_has_left_is_in_no_new_group() -> None:
    split = _split({0: (1, 0), 1: (1, 0), 2: (1, 0)}, left={1: 6}, parent="g")
    assert split == {"split of g, call 7, color 1": [0, 2]}
    (dup,) = _plan(DUP, dict.fromkeys([2, 0, 1], b""), left={0: 6})
    assert (dup.name, dup.ranks) == ("dup of the world, call 7", [2, 1])


def test_ranks_are_those_of_the_group_that_it_is_made_of() -> None:
    (plan,) = _plan(GROUP, dict.fromkeys([8, 5, 6], pack_ranks([2, 0])), parent="g")
    assert (plan.name, plan.ranks) == ("group of g, call 7", [6, 8])


def test_a_group_of_one_that_has_left() -> None:
    given = dict.fromkeys([8, 5, 6], pack_ranks([2, 1]))
    with pytest.raises(CollectiveError, match="replica 5 has left the group") as error:
        _plan(GROUP, given, left={5: 6})
    assert (error.value.rank, error.value.op, error.value.seq) == (5, "group", 7)


def test_replicas_that_name_different_ranks() -> None:
    given = {8: pack_ranks([0, 1]), 5: pack_ranks([0, 1]), 6: pack_ranks([1, 0])}
    text = r"replicas 8 and 6 name different ranks, \[0, 1\] and \[1, 0\]"
    with pytest.raises(CollectiveError, match=text) as error:
        _plan(GROUP, given)
    assert error.value.rank == 6


def test_names_do_not_grow_without_end() -> None:
    name = ""
    for _ in range(50):
        (plan,) = _plan(DUP, {0: b""}, parent=name)
        name = plan.name
    (name,) = _split({0: ("c" * 5000, 0)}, parent=name)
    assert len(name) < 3 * MAX_NAME
    assert name.startswith("split of dup of ")


@pytest.mark.parametrize(
    ("makes", "body", "why"),
    [
        (Makes.SPLIT, b"not JSON", "not JSON"),
        (Makes.SPLIT, b"[]", "not a JSON object"),
        (Makes.SPLIT, pack_fields({"color": 1}), "by color 1 and key None"),
        (Makes.SPLIT, pack_fields({"color": 1.5, "key": 0}), "by color 1.5"),
        (Makes.SPLIT, pack_fields({"color": True, "key": 0}), "by color True"),
        (Makes.SPLIT, pack_fields({"color": [], "key": 0}), r"by color \[\]"),
        (Makes.SPLIT, pack_fields({"color": 1, "key": False}), "key False"),
        (Makes.GROUP, pack_fields({"ranks": None}), "ranks None"),
        (Makes.GROUP, pack_fields({"ranks": []}), r"ranks \[\]"),
        (Makes.GROUP, pack_fields({"ranks": [3]}), r"ranks \[3\]"),
        (Makes.GROUP, pack_fields({"ranks": [-1]}), r"ranks \[-1\]"),
        (Makes.GROUP, pack_fields({"ranks": [True]}), r"ranks \[True\]"),
        (Makes.GROUP, pack_fields({"ranks": [[0]]}), r"ranks \[\[0\]\]"),
        (Makes.GROUP, pack_fields({"ranks": [1, 1]}), r"ranks \[1, 1\]"),
    ],
)
def test_what_makes_no_sense_is_a_protocol_error(
    makes: Makes, body: bytes, why: str
) -> None:
    with pytest.raises(ProtocolError, match=why):
        check_plan(makes, Payload([body]), 3)

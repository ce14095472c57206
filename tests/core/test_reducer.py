import functools
import operator
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zcoll.reducer import Fold, default_reduce_fn


def fold(function: Callable[[Any, Any], Any], operands: list[Any]) -> Any:
    reduction = Fold(function)
    result = None
    for operand in operands:
        result = reduction.add(operand)
    return result


@pytest.mark.parametrize(
    ("operands", "result"),
    [
        ([1, 2, 3], 6),
        (["a", "b", "c"], "abc"),
        ([[1], [2], []], [1, 2]),
        ([Counter("ab"), Counter("b")], Counter("abb")),
        ([(1,), (2,)], (1, 2)),
        ([None], None),
    ],
)
def test_the_default_adds(operands: list[Any], result: Any) -> None:
    assert fold(default_reduce_fn, operands) == result


def test_the_default_changes_its_left_operand_in_place() -> None:
    first = [1]
    assert default_reduce_fn(first, [2]) is first


@given(st.lists(st.integers(), min_size=1))
def test_it_is_a_left_fold(operands: list[int]) -> None:
    expected = functools.reduce(operator.sub, operands)
    assert fold(operator.sub, operands) == expected


def test_brackets_are_on_the_left() -> None:
    assert fold("({}{})".format, ["a", "b", "c", "d"]) == "(((ab)c)d)"


def test_none_is_an_operand_like_any_other() -> None:
    assert fold(lambda a, b: (a, b), [None, None, 1]) == ((None, None), 1)


def test_one_operand_needs_no_function() -> None:
    assert fold(operator.truediv, [7]) == 7


def test_what_the_function_raises_comes_out() -> None:
    with pytest.raises(ZeroDivisionError):
        fold(operator.truediv, [1, 0])

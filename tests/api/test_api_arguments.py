"""Arguments of calls and groups: each error says which, and nothing is called."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import zcoll


@pytest.mark.parametrize("tag", [None, 5, b"t", "x" * 256, "half \ud800"])
def test_a_tag_is_a_short_text(tag: Any) -> None:
    with zcoll.connect() as comm:
        for call in (comm.barrier, comm.barrier_async, comm.dup):
            with pytest.raises(zcoll.ConfigurationError, match="tag must be a text"):
                call(tag=tag)
        comm.barrier(tag="é" * 127)


@pytest.mark.parametrize("number", [np.int64(3), np.uint8(3), 3])
def test_colors_and_keys_may_be_numpys(number: Any) -> None:
    with zcoll.connect() as comm:
        group = comm.split(number, key=number)
        assert group is not None
        assert group.name == "split of the world, call 1, color 3"


@pytest.mark.parametrize(
    ("color", "key", "why"),
    [
        (1.0, 0, "color must be int, str or None, not 1.0"),
        (True, 0, "color must be int, str or None, not True"),
        (b"c", 0, "color must be int, str or None, not b'c'"),
        (2**64, 0, "color must fit 64 bits"),
        (0, "k", "key must be an int, not 'k'"),
        (0, None, "key must be an int, not None"),
        (0, -(2**64), "key must fit 64 bits"),
    ],
)
def test_other_colors_and_keys_are_refused(color: Any, key: Any, why: str) -> None:
    with zcoll.connect() as comm:
        with pytest.raises(zcoll.ConfigurationError, match=why):
            comm.split(color, key)
        comm.barrier()

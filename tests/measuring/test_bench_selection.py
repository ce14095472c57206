from collections.abc import Sequence

import pytest
from bench.cells import ALL, SHORT, Cell, select
from bench.measure import MOST_MEMORY, Effort, why_not
from bench.payloads import PAYLOADS, is_right
from bench.variants import VARIANTS


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["allreduce/int/2"], ["allreduce/int/2"]),
        (["pipeline/*"], [f"pipeline/int/{n}" for n in (2, 4, 8, 16)]),
        (
            ["gather/1MB/[48]", "allreduce/int/4"],
            ["allreduce/int/4", "gather/1MB/4", "gather/1MB/8"],
        ),
        (["allreduce/int/2", "*/int/2"], [str(c) for c in SHORT if "int" in str(c)]),
    ],
)
def test_cells_are_selected_by_pattern_in_their_own_order(
    patterns: Sequence[str], expected: list[str]
) -> None:
    assert [str(cell) for cell in select(ALL, patterns)] == expected


def test_a_pattern_that_matches_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no cell is like 'allreduce/2'"):
        select(ALL, ["allreduce/int/2", "allreduce/2"])


@pytest.mark.parametrize(
    ("seconds", "turns", "taken", "expected"),
    [
        (1.0, 5, 0.01, (5, 20)),
        (1.0, 5, 0.3, (3, 1)),
        (1.0, 5, 7.0, (1, 1)),
        (1.0, 2, 1e-6, (2, 2000)),
    ],
)
def test_rounds_fit_into_the_time(
    seconds: float, turns: int, taken: float, expected: tuple[int, int]
) -> None:
    assert Effort(seconds, turns).rounds(taken) == expected


@pytest.mark.parametrize(
    ("name", "what", "payload", "size", "why"),
    [
        ("zcoll-ipc", "allreduce", "256MB", 8, ""),
        ("zcoll-ipc", "gather", "int", 2, ""),
        ("adaptdl", "gather", "int", 2, "no such call"),
        ("torch-object", "pipeline", "int", 2, "no such call"),
        ("torch-tensor", "allreduce", "dict", 2, "no objects"),
        ("torch-object", "allreduce", "256MB", 8, "memory"),
    ],
)
def test_what_cannot_be_measured_is_left_out(
    name: str, what: str, payload: str, size: int, why: str
) -> None:
    cell = Cell(what, PAYLOADS[payload], size)
    assert why_not(VARIANTS[name], cell) == why


def test_less_free_memory_leaves_more_out() -> None:
    cell = Cell("allreduce", PAYLOADS["256MB"], 2)
    assert why_not(VARIANTS["limit"], cell, MOST_MEMORY) == ""
    assert why_not(VARIANTS["limit"], cell, 1 << 30) == "memory"


@pytest.mark.parametrize("name", ["int", "dict", "1KB"])
def test_results_are_checked(name: str) -> None:
    payload = PAYLOADS[name]
    total = payload.make()
    for _ in range(2):
        total = payload.reduce_fn(total, payload.make())
    one = payload.make()
    assert is_right("allreduce", payload, total, 1, 3)
    assert not is_right("allreduce", payload, total, 1, 4)
    assert is_right("broadcast", payload, one, 2, 3)
    assert not is_right("broadcast", payload, total, 2, 3)
    assert is_right("gather", payload, [one, one, one], 0, 3)
    assert not is_right("gather", payload, [one, one], 0, 3)
    assert not is_right("gather", payload, [one, total, one], 0, 3)
    assert is_right("gather", payload, None, 1, 3)
    assert not is_right("gather", payload, [one, one, one], 1, 3)

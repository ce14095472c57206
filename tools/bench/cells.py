"""The cells: which call, with which payload, between how many replicas."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from bench.payloads import PAYLOADS, Payload

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZES = (2, 4, 8, 16)  # replicas

OUTSTANDING = 1000  # calls that a pipeline has in flight

_PAYLOADS_OF = {
    "allreduce": tuple(PAYLOADS),
    "pipeline": ("int",),
    "broadcast": ("int", "64KB", "1MB", "32MB"),
    "gather": ("int", "64KB", "1MB", "32MB"),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One thing to measure.

    Attributes:
        what: ``allreduce``, ``broadcast`` and ``gather`` are blocking calls, one
            after the other; ``pipeline`` is 1,000 allreduces that are made before
            the first result is asked for.
        payload: What each replica gives.
        size: How many replicas there are.
    """

    what: str
    payload: Payload
    size: int

    def __str__(self) -> str:
        return f"{self.what}/{self.payload.name}/{self.size}"

    @property
    def calls_at_once(self) -> int:
        """Calls of zcoll that one round of this cell makes."""
        return OUTSTANDING if self.what == "pipeline" else 1


ALL = tuple(
    Cell(what, PAYLOADS[name], size)
    for size in SIZES
    for what, names in _PAYLOADS_OF.items()
    for name in names
)

_INTS = tuple(f"{what}/int" for what in _PAYLOADS_OF)

SHORT = tuple(
    cell
    for cell in ALL
    if cell.size == 2
    and str(cell).startswith(("allreduce/1MB", "allreduce/dict", *_INTS))
)


def select(cells: Sequence[Cell], patterns: Sequence[str]) -> list[Cell]:
    """The cells whose names match a pattern, such as ``allreduce/*/8``.

    Raises:
        ValueError: A pattern matches none.
    """
    chosen: set[Cell] = set()
    for pattern in patterns:
        found = [cell for cell in cells if fnmatchcase(str(cell), pattern)]
        if not found:
            raise ValueError(f"no cell is like {pattern!r}; one is {cells[0]}")
        chosen.update(found)
    return [cell for cell in cells if cell in chosen]

"""What the calls carry, how it is reduced, and whether a result is right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

LARGE = 32_000_000  # bytes of an array whose first call costs what the others do

METRICS = {"loss": 0.5, "accuracy": 0.25, "samples": 32, "steps": 1}


@dataclass(frozen=True, slots=True)
class Payload:
    """A kind of value.

    Attributes:
        name: Its name in tables and on the command line.
        size: Bytes of the array; 0 for what is no array.
    """

    name: str
    size: int = 0

    def make(self) -> Any:
        """A new value, the same on every replica."""
        if self.size:
            import numpy as np  # noqa: PLC0415 - who measures an import must not do it

            return np.ones(self.size // 8)
        return dict(METRICS) if self.name == "dict" else 1

    @property
    def reduce_fn(self) -> Callable[[Any, Any], Any]:
        """What adds two values; it changes the first, as all peers allow."""
        return _add_items if self.name == "dict" else _add

    def total(self, size: int) -> Any:
        """The sum over so many replicas; for an array, each of its items."""
        if self.name == "dict":
            return {key: item * size for key, item in METRICS.items()}
        return size


PAYLOADS = {
    payload.name: payload
    for payload in (
        Payload("int"),
        Payload("dict"),
        Payload("1KB", 1_000),
        Payload("64KB", 64_000),
        Payload("1MB", 1_000_000),
        Payload("32MB", 32_000_000),
        Payload("256MB", 256_000_000),
    )
}


def _add(a: Any, b: Any) -> Any:
    a += b
    return a


def _add_items(a: dict[str, float], b: dict[str, float]) -> dict[str, float]:
    for key, item in b.items():
        a[key] += item
    return a


def same(value: object, expected: object) -> bool:
    """Whether a value, or every item of an array or tensor, is what it should be."""
    if isinstance(expected, dict):
        return value == expected
    import numpy as np  # noqa: PLC0415 - as above

    return bool(np.all(np.asarray(value) == expected))


def is_right(what: str, payload: Payload, result: Any, rank: int, size: int) -> bool:
    """Whether a call gave the right result to this replica."""
    if what in ("allreduce", "pipeline"):
        return same(result, payload.total(size))
    if what == "broadcast":
        return same(result, payload.total(1))
    if rank != 0:
        return result is None
    return len(result) == size and all(same(i, payload.total(1)) for i in result)

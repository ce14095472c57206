"""A thousand calls of all kinds, the asynchronous ones collected in reverse."""

from __future__ import annotations

import functools
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from report import report

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

CALLS = 1000


def join(one: str, other: str) -> str:
    """Neither commute nor associate."""
    return f"({one}{other})"


def value_of(kind: int, rank: int, step: int) -> Any:
    """Make what a replica contributes to a call."""
    makers: list[Callable[[], Any]] = [
        lambda: rank * step,
        lambda: [rank, step],
        lambda: Counter({rank: step, "all": 1}),
        lambda: np.arange(50) * 0.1 + rank,
        lambda: np.full(20_000 * (step % 9), rank + step),
        lambda: f"{rank}.{step}",
    ]
    return makers[kind]()


def function_of(kind: int) -> Callable[[Any, Any], Any]:
    """Choose the reduce function for a kind of values."""
    return join if kind == 5 else zcoll.default_reduce_fn


def is_right(kind: int, size: int, step: int, result: Any) -> bool:
    """Compare an allreduce's result with a plain fold."""
    values = [value_of(kind, rank, step) for rank in range(size)]
    expected = functools.reduce(function_of(kind), values)
    if isinstance(expected, np.ndarray):
        return bool(expected.tobytes() == result.tobytes())
    return bool(expected == result)


def main() -> None:
    zcoll.initialize()
    rank, size = zcoll.replica_rank(), zcoll.num_replicas()
    choose = random.Random(size)  # the same choices on every replica
    pending: list[tuple[int, int, Future[Any]]] = []
    wrong: list[str] = []
    for step in range(CALLS):
        what = choose.choice(
            ["async"] * 5 + ["blocking"] * 3 + ["broadcast", "barrier"]
        )
        kind, root = choose.randrange(6), choose.randrange(size)
        value = value_of(kind, rank, step)
        if what == "async":
            future = zcoll.allreduce_async(value, function_of(kind))
            pending.append((kind, step, future))
        elif what == "blocking":
            result = zcoll.allreduce(value, function_of(kind))
            if not is_right(kind, size, step, result):
                wrong.append(f"call {step}: {result!r:.200}")
        elif what == "broadcast":
            if zcoll.broadcast((rank, step), root=root) != (root, step):
                wrong.append(f"call {step}: broadcast from {root}")
        else:
            zcoll.barrier()
    for kind, step, future in reversed(pending):
        if not is_right(kind, size, step, future.result(30)):
            wrong.append(f"call {step}: {future.result()!r:.200}")
    zcoll.teardown()
    report(rank, {"calls": CALLS, "async": len(pending), "wrong": wrong})


if __name__ == "__main__":
    main()

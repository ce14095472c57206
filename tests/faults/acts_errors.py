"""What puppets do wrong, in one call."""

from __future__ import annotations

from typing import Any

import zcoll


class Picky:
    """Cannot be pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("not this one")


def _unpack(rank: int) -> str:
    if zcoll.is_initialized() and zcoll.replica_rank() == rank:
        raise ValueError("not here")
    return "unpacked"


class Local:
    """Cannot be unpickled on one replica."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpack, (self._rank,)


def broadcast(value: Any, root: int) -> Any:
    """Give everybody a value."""
    return zcoll.broadcast(value, root=root)


def broadcast_local(rank: int) -> str:
    """Give everybody what one replica cannot unpickle."""
    value: Any = zcoll.broadcast(Local(rank), root=0)
    return str(value)


def allreduce_picky(rank: int) -> Any:
    """Contribute what cannot be pickled, on one replica."""
    return zcoll.allreduce(Picky() if zcoll.replica_rank() == rank else 1)


def reduce_badly() -> Any:
    """Reduce by a function that raises."""

    def function(_: int, __: int) -> int:
        raise ArithmeticError("no sum")

    return zcoll.allreduce(1, function)

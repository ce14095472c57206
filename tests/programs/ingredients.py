"""What programs are made of: reduce functions, values, and what is wrong with some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

# --- reduce functions, none of which commutes -------------------------------------


def join(a: str, b: str) -> str:
    return a + b


def nest(a: str, b: str) -> str:
    """Write down how the fold was bracketed: this does not associate either."""
    return f"({a}{b})"


def extend(a: list[str], b: list[str]) -> list[str]:
    """Change the left operand in place, as the default function does."""
    a += b
    return a


def chain(a: list[str], b: list[str]) -> list[str]:
    return a + b


def multiply(a: Any, b: Any) -> Any:
    return a @ b


def subtract(a: int, b: int) -> int:
    return a - b


def fail(a: Any, b: Any) -> Any:
    raise ArithmeticError("this function always fails")


def spoil(a: Any, b: Any) -> Any:
    return Unpicklable()


class Unpicklable:
    """No pickle of this can be made."""

    def __reduce__(self) -> Any:
        raise TypeError("this cannot be pickled")


class Untakeable:
    """A pickle of this can be made, but nobody can take it."""

    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> Any:
    raise ValueError("this cannot be unpickled")


def _matrix(label: str) -> Any:
    numbers = [ord(letter) % 7 - 3 for letter in label[-4:].rjust(4, "x")]
    return np.array(numbers).reshape(2, 2)


# A function, and what it takes, made from a label.
FOLDS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[str], Any]]] = {
    "join": (join, lambda label: f"<{label}>"),
    "multiply": (multiply, _matrix),
    "chain": (chain, lambda label: [label]),
    "extend": (extend, lambda label: [label]),
    "nest": (nest, lambda label: label),
    "subtract": (subtract, lambda label: len(label) + ord(label[-1])),
}
# What mpi4py asks for: associative, and its scan goes wrong with a function that
# changes an operand.
ASSOCIATIVE_AND_PURE = ("join", "multiply", "chain")


# What may be wrong with a call, and which error it is. The first is found by who
# makes the call; what cannot be unpickled, by rank 0 and only if it has to be.
FLAWS = {
    "length": "CollectiveError",
    "unpicklable": "EncodeError",
    "untakeable": "DecodeError",
    "fails": "ReduceError",
    "spoils": "EncodeError",
}
FUNCTIONS = {"fails": fail, "spoils": spoil}  # those of reduce functions

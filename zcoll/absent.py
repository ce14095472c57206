"""What stands in lists for a replica that has left the group."""

from __future__ import annotations

from typing import Any, Final


class Absent:
    """The type of :data:`zcoll.ABSENT`, of which there is one instance."""

    _one: Absent | None = None

    def __new__(cls) -> Absent:
        """Give the one instance."""
        if cls._one is None:
            cls._one = super().__new__(cls)
        return cls._one

    def __repr__(self) -> str:
        return "zcoll.ABSENT"

    def __reduce__(self) -> tuple[type[Absent], tuple[()]]:
        return Absent, ()


# Any, so that type checkers let it be compared with the values of a list.
ABSENT: Final[Any] = Absent()

"""Options of ``zcoll run`` that are not just numbers."""

from __future__ import annotations

from typing import Literal

import click

AUTO: Literal["auto"] = "auto"


def read_total(text: str) -> int:
    """Read the size of a group, perhaps a sum: ``5``, ``1+4``.

    Files that say how many replicas there are beside rank 0 cannot always add.

    Raises:
        BadParameter: It is neither, or nobody would be in the group.
    """
    parts = text.split("+")
    if not all(part.strip().isdecimal() for part in parts):
        raise click.BadParameter(f"{text!r} is neither a number nor a sum as 1+4")
    total = sum(int(part) for part in parts)
    if total < 1:
        raise click.BadParameter("a group has at least 1 replica")
    return total


def read_first_rank(text: str) -> int | Literal["auto"]:
    """Read a rank, or ``auto``.

    Raises:
        BadParameter: It is neither.
    """
    if text == AUTO:
        return AUTO
    if not text.isdecimal():
        raise click.BadParameter(f"{text!r} is neither a rank nor {AUTO!r}")
    return int(text)

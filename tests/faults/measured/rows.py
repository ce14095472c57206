"""The rows of the table, in its order. A module of rows has a function ``rows``."""

from __future__ import annotations

from faults.measured import errors, losses
from faults.measured.row import Row

MODULES = (losses, errors)


def all_rows() -> list[Row]:
    """Every row."""
    return [row for module in MODULES for row in module.rows()]

"""The rows of the table, in its order. A module of rows has a function ``rows``."""

from __future__ import annotations

from faults.measured import connections, errors, losses
from faults.measured.row import Row

MODULES = (losses, connections, errors)


def all_rows() -> list[Row]:
    """Every row."""
    return [row for module in MODULES for row in module.rows()]

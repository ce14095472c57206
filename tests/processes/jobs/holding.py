"""What a process holds of a group: descriptors, and memory that it shares."""

from __future__ import annotations

import os
from pathlib import Path

_MAPS = Path("/proc/self/maps")


def descriptors() -> int:
    """How many are open."""
    return len(os.listdir("/proc/self/fd"))


def lanes() -> int:
    """How many lanes are mapped."""
    return _MAPS.read_text().count("/memfd:zcoll") if _MAPS.exists() else 0

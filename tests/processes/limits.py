"""A limit on the memory of what a test starts, as a container has one."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path("/sys/fs/cgroup")
LIMIT = 10.0  # seconds until what was in a group has ended


@contextlib.contextmanager
def memory_limit(name: str, size: int) -> Iterator[Path]:
    """Make a control group below this process's own; skip where that cannot be.

    Args:
        name: What it is called.
        size: Bytes that all in it may use together, shared memory included.
    """
    group = _own_group() / name
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error.strerror}")
    try:
        limits = [group / "memory.limit_in_bytes", group / "memory.max"]
        limit = next((path for path in limits if path.exists()), None)
        if limit is None:
            pytest.skip("control groups have no limit on memory here")
        limit.write_text(str(size))
        yield group
    finally:
        deadline = time.monotonic() + LIMIT
        while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        group.rmdir()


def _own_group() -> Path:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return ROOT / "memory" / path.lstrip("/")
    return ROOT / path.lstrip("/")

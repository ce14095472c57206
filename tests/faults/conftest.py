"""Where the processes come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from faults.phases import Way
from faults.puppets import Nursery

from zcoll.launchers.settings import Liveness

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Short, but long enough for a machine that is busy with other tests.
QUICK = Liveness(heartbeat_interval=0.25, heartbeat_timeout=1.25, reconnect_window=0.5)


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Give the program that makes processes."""
    one = Nursery()
    yield one
    one.close()


@pytest.fixture(params=["ipc", "tcp"])
def way(request: pytest.FixtureRequest) -> Way:
    """Give each of the ways in which a group meets."""
    return Way(request.param, QUICK)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Give a directory for one job's reports."""
    path = tmp_path / "results"
    path.mkdir()
    return path

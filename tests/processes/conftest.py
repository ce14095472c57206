"""Where the replicas of a job leave what they found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Give a directory for one job's reports."""
    path = tmp_path / "results"
    path.mkdir()
    return path

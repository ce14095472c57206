"""Nothing of a launcher that runs the tests."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("ZCOLL_", "ADAPTDL_")):
            monkeypatch.delenv(name)

"""Groups that the tests of the API share."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import pytest
from group import Crew

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what this machine's environment says out of the tests."""
    for name in list(os.environ):
        if name.startswith(("ZCOLL_", "ADAPTDL_")):
            monkeypatch.delenv(name)


def _close(crew: Crew) -> None:
    # Whether one closes that a failed test has left behind, nobody can promise.
    with contextlib.suppress(Exception) if crew.broken else contextlib.nullcontext():
        crew.close()


@pytest.fixture(scope="session")
def _crews() -> Iterator[dict[int, Crew]]:
    crews: dict[int, Crew] = {}
    yield crews
    for crew in crews.values():
        _close(crew)


@pytest.fixture
def crew_of(_crews: dict[int, Crew]) -> Callable[[int], Crew]:
    """Give a group of some size, which all tests share as long as it works.

    That each test finds the group usable also shows that the one before it left
    the group so. Tests that end a group make their own.
    """

    def get(size: int) -> Crew:
        if size in _crews and _crews[size].broken:
            _close(_crews.pop(size))
        if size not in _crews:
            _crews[size] = Crew(size)
        return _crews[size]

    return get


@pytest.fixture(params=[1, 2, 3, 4, 5])
def crew(request: pytest.FixtureRequest, crew_of: Callable[[int], Crew]) -> Crew:
    """Give a shared group, once of each size from 1 to 5."""
    return crew_of(request.param)


@pytest.fixture
def trio(crew_of: Callable[[int], Crew]) -> Crew:
    """Give a shared group of three replicas."""
    return crew_of(3)

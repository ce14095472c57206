"""Connections that are cut while both processes live: nobody notices."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

import pytest
from faults.between import add_arrays, call_often, mix_calls, only_first, proxied
from faults.cuts import run
from faults.harm import Fault, short_lives

if TYPE_CHECKING:
    from faults.puppets import Nursery

MEBI = 1 << 20
CALLS = 5
UP, DOWN = 1782, 1451  # bytes of such a group's whole life, without faults

ways = pytest.mark.parametrize("way", ["up", "down"])
# ZMTP's greeting, the CURVE handshake, HELLO and READY, calls, teardown.
places = pytest.mark.parametrize(
    "places",
    [range(0, 66, 8), range(66, 600, 31), range(600, 1000, 29), range(1000, 1750, 37)],
    ids=["greeting", "handshake", "joining", "calls"],
)


@pytest.fixture(autouse=True)
def _by_the_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let everything pass the proxy, though all are on one host."""
    monkeypatch.setenv("ZCOLL_LANE", "zmq")


def cut_at(way: str, place: int) -> Fault:
    """Cut after so many bytes; every other time by a reset."""
    reset = bool(place % 2)
    if way == "up":
        return Fault(cut_up=place, reset=reset)
    return Fault(cut_down=place, reset=reset)


@ways
@places
def test_a_cut_anywhere_in_a_groups_life_changes_nothing(
    way: str, places: range
) -> None:
    for place in places:
        with proxied(2, only_first(cut_at(way, place))) as (proxy, crew):
            call_often(crew, CALLS)
        in_its_life = place < (UP if way == "up" else DOWN) - 100  # sizes may vary
        assert proxy.cuts == 1 or not in_its_life, place


@ways
def test_several_cuts_while_joining(way: str) -> None:
    def faults(index: int) -> Fault:
        return cut_at(way, 90 * index + 50)

    with proxied(3, faults) as (proxy, crew):
        call_often(crew, CALLS)
    assert proxy.cuts >= 6


@ways
@pytest.mark.parametrize(
    "place",
    [
        1100,  # in the header of the call
        70_000,
        MEBI,
        MEBI + 1200,  # between the first two chunks, more or less
        2 * MEBI + 777,
        3 * MEBI - 50_000,
        3 * MEBI + 2000,
    ],
)
def test_a_cut_in_a_large_payload_changes_nothing(way: str, place: int) -> None:
    nbytes = 3 * MEBI + 8 * 321
    with proxied(2, only_first(cut_at(way, place))) as (proxy, crew):
        assert crew.run(lambda comm: add_arrays(comm, nbytes)) == [True, True]
        call_often(crew, CALLS)
    assert proxy.cuts == 1


@ways
def test_a_payload_gets_through_connections_that_carry_only_a_part(way: str) -> None:
    """No connection carries more than a chunk and a half, and it needs ten chunks."""

    def faults(index: int) -> Fault:
        return cut_at(way, 3 * MEBI // 2 + index)

    nbytes = 10 * MEBI
    with proxied(2, faults) as (proxy, crew):
        assert crew.run(lambda comm: add_arrays(comm, nbytes)) == [True, True]
    assert proxy.cuts >= 7


def test_a_repaired_connection_takes_less_than_the_window() -> None:
    """With the default window of 2 s: the next call ends within it."""
    with proxied(3, reconnect_window=2.0) as (proxy, crew):
        for reset in (False, True) * 2:
            call_often(crew, CALLS)
            cut = time.monotonic()
            proxy.cut(reset=reset)
            call_often(crew, 1)
            assert time.monotonic() - cut < 2
    assert proxy.cuts == 8


@pytest.mark.parametrize("lane", ["zmq", "auto"])
def test_calls_of_all_sizes_through_connections_that_live_shortly(
    lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection has a lane of its own, which ends with it."""
    monkeypatch.setenv("ZCOLL_LANE", lane)
    with proxied(3, short_lives(0.15, seed=4)) as (proxy, crew):
        task = functools.partial(mix_calls, calls=120, seed=7)
        assert crew.run(task) == [[]] * 3
    assert proxy.cuts >= 6


def test_thousands_of_calls_through_connections_that_live_shortly(
    nursery: Nursery,
) -> None:
    """``tools/cuts`` makes 10,000 calls."""
    found = run(nursery, size=3, calls=1500, mean=0.05, seed=11)
    assert found.wrong == 0
    assert found.cuts > 20
    assert max(found.growth) < 2 * MEBI

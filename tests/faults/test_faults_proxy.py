"""Connections that are down, slow, silent, late or changed on their way."""

from __future__ import annotations

import functools
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotEnded
from typing import Any

import pytest
from faults.between import add_arrays, call_often, mix_calls, only_first, proxied
from faults.harm import NONE, Fault
from faults.proxy import Proxy
from group import LIMIT, SECRET, Crew, Replica
from ports import tcp_port

import zcoll
from zcoll.engine import waiting

MEBI = 1 << 20
SLACK = 1.0  # seconds that bounds allow for everything but the silence itself

# Short, but long enough for a machine that is busy with other tests.
QUICK: dict[str, Any] = {"heartbeat_interval": 0.25, "heartbeat_timeout": 1.25}
WINDOW = 0.5
SILENCE = 0.25 + 1.25 + WINDOW


@pytest.fixture(autouse=True)
def _by_the_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let everything pass the proxy, though all are on one host."""
    monkeypatch.setenv("ZCOLL_LANE", "zmq")


def call_for_ever(comm: zcoll.Communicator) -> None:
    while True:
        comm.allreduce(1)


def until_lost(comm: zcoll.Communicator) -> tuple[int | None, float]:
    """Make calls until one fails: who is lost, and when that was known."""
    with pytest.raises(zcoll.ReplicaLostError) as caught:
        call_for_ever(comm)
    at = time.monotonic()
    with pytest.raises(zcoll.ReplicaLostError) as again:
        comm.barrier()
    assert str(again.value) == str(caught.value)
    return caught.value.rank, at


def start(
    port: int, rank: int, size: int, **options: Any
) -> tuple[Replica, Future[None]]:
    """Let a replica come in, in a thread."""
    replica = Replica(
        rank,
        functools.partial(
            zcoll.connect, "127.0.0.1", port, rank, size, secret=SECRET, **options
        ),
    )
    return replica, replica.joined


# --- down -------------------------------------------------------------------


def test_an_outage_within_the_window_is_survived() -> None:
    with proxied(3, reconnect_window=20.0) as (proxy, crew):
        call_often(crew, 3)
        accepted = proxy.accepted
        proxy.close_door()
        futures = crew.run(lambda comm: comm.allreduce_async([comm.replica_rank]))
        while proxy.accepted < accepted + 6:  # each has tried in vain
            time.sleep(0.01)
        assert not any(future.done() for future in futures)
        proxy.open_door()
        assert [future.result(LIMIT) for future in futures] == [[0, 1, 2]] * 3
        call_often(crew, 3)


@pytest.mark.parametrize("large", [False, True], ids=["idle", "sending"])
def test_an_outage_beyond_the_window_is_a_loss_for_everybody(large: bool) -> None:
    """Replica 1 has a way of its own; the others have the one that is cut."""
    port = tcp_port()
    rate = 20e6 if large else None
    with Proxy(port) as good, Proxy(port, lambda _: Fault(rate=rate)) as bad:
        ports = [port, good.port, bad.port]
        with Crew(3, secret=SECRET, ports=ports, reconnect_window=WINDOW) as crew:
            call_often(crew, 3)
            if large:
                crew.run(lambda comm: comm.allreduce_async(bytearray(20 * MEBI)))
                moved = bad.up
                while bad.up < moved + MEBI:
                    time.sleep(0.005)
            cut = time.monotonic()
            bad.close_door()
            lost = crew.run(until_lost)
            assert [rank for rank, _ in lost] == [2, 2, 0]
            for _, at in lost:
                assert at - cut < WINDOW + SLACK
            bad.open_door()
            assert [rank for rank, _ in crew.run(until_lost)] == [2, 2, 0]


# --- silent -----------------------------------------------------------------


def test_a_stall_shorter_than_the_heartbeats_allow_is_no_loss() -> None:
    with proxied(3, heartbeat_interval=0.25, heartbeat_timeout=10.0) as (proxy, crew):
        call_often(crew, 3)
        accepted = proxy.accepted
        proxy.stall()
        futures = crew.run(lambda comm: comm.allreduce_async([comm.replica_rank]))
        with pytest.raises(zcoll.CollectiveTimeoutError):
            crew.run(lambda comm: comm.barrier(timeout=1.0))
        assert not any(future.done() for future in futures)
        proxy.flow()
        assert [future.result(LIMIT) for future in futures] == [[0, 1, 2]] * 3
        assert proxy.accepted == accepted


def test_a_stall_longer_than_the_heartbeats_allow_is_repaired_in_the_window() -> None:
    with proxied(2, **QUICK, reconnect_window=20.0) as (proxy, crew):
        call_often(crew, 3)
        accepted = proxy.accepted
        proxy.stall()
        futures = crew.run(lambda comm: comm.allreduce_async([comm.replica_rank]))
        while proxy.accepted == accepted:  # it takes this connection for dead
            time.sleep(0.01)
        proxy.flow()
        assert [future.result(LIMIT) for future in futures] == [[0, 1]] * 2
        call_often(crew, 3)


def test_a_stall_for_good_is_a_loss_for_everybody() -> None:
    with proxied(2, **QUICK, reconnect_window=WINDOW) as (proxy, crew):
        call_often(crew, 3)
        stalled = time.monotonic()
        proxy.stall()
        lost = crew.run(until_lost)
        assert [rank for rank, _ in lost] == [1, 0]
        for _, at in lost:
            assert at - stalled < SILENCE + SLACK


# --- late and slow ----------------------------------------------------------


def test_everything_may_be_late() -> None:
    with proxied(3, lambda _: Fault(delay=0.1)) as (proxy, crew):
        call_often(crew, 5)
        assert crew.run(lambda comm: add_arrays(comm, 3 * MEBI)) == [True] * 3
        task = functools.partial(mix_calls, calls=20, seed=3)
        assert crew.run(task) == [[]] * 3
    assert proxy.reached == 2


def test_everything_may_be_slow() -> None:
    """2 MB/s and a payload that takes longer than silence is allowed to last."""
    with proxied(2, lambda _: Fault(rate=2e6), **QUICK) as (proxy, crew):
        assert crew.run(lambda comm: add_arrays(comm, 6 * MEBI)) == [True] * 2
    assert proxy.reached == 1


# --- changed ----------------------------------------------------------------


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize(
    "places",
    [range(0, 66, 6), range(66, 600, 41), range(600, 1000, 37), range(1000, 1500, 41)],
    ids=["greeting", "handshake", "joining", "calls"],
)
def test_a_changed_byte_is_noticed_and_repaired(way: str, places: range) -> None:
    for place in places:
        fault = Fault(flip_up=place) if way == "up" else Fault(flip_down=place)
        with proxied(2, only_first(fault), **QUICK) as (_, crew):
            call_often(crew, 5)


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("place", [5000, 100_000, MEBI + 3000, 2 * MEBI + 12_345])
def test_a_changed_byte_of_a_large_payload_is_noticed(way: str, place: int) -> None:
    fault = Fault(flip_up=place) if way == "up" else Fault(flip_down=place)
    with proxied(2, only_first(fault), **QUICK) as (proxy, crew):
        assert crew.run(lambda comm: add_arrays(comm, 3 * MEBI)) == [True] * 2
        call_often(crew, 3)
    assert proxy.reached == 2


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_changed_byte_ends_the_connection_at_once(way: str) -> None:
    """With the default heartbeats, by which it would end in 12 s."""
    place = MEBI + 3000
    fault = Fault(flip_up=place) if way == "up" else Fault(flip_down=place)
    with proxied(2, only_first(fault)) as (proxy, crew):
        started = time.monotonic()
        assert crew.run(lambda comm: add_arrays(comm, 3 * MEBI)) == [True] * 2
        assert time.monotonic() - started < 6
    assert proxy.reached == 2


def test_many_changed_bytes() -> None:
    """Every connection is spoilt a little later than the one before."""

    def faults(index: int) -> Fault:
        place = 500 + 173 * index
        return Fault(flip_up=place) if index % 2 else Fault(flip_down=place)

    with proxied(2, faults, **QUICK) as (proxy, crew):
        call_often(crew, 40)
    assert proxy.reached > 5


# --- not ready, and taken ---------------------------------------------------


def test_a_proxy_that_closes_at_once_is_not_a_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is in front of a rank 0 that is not there yet."""
    monkeypatch.setattr(waiting, "REFUSED_LIMIT", 0.3)
    port = tcp_port()
    with Proxy(port, door=False) as proxy:
        one, joined = start(proxy.port, 1, 2, timeout=LIMIT)
        while proxy.accepted < 10:
            assert not joined.done()
            time.sleep(0.05)
        with pytest.raises(NotEnded):  # it looks once a second what is there
            joined.result(2.5)
        zero, complete = start(port, 0, 2, timeout=LIMIT)
        proxy.open_door()
        joined.result(LIMIT)
        complete.result(LIMIT)
        results = [
            one.start(lambda c: c.allreduce(1)),
            zero.start(lambda c: c.allreduce(2)),
        ]
        assert [result.result(LIMIT) for result in results] == [3, 3]
        for replica in (zero, one):
            replica.leave()
        zero.left.result(LIMIT)
        one.left.result(LIMIT)


@pytest.mark.parametrize("cut", [False, True], ids=["standing", "cut"])
def test_a_rank_that_is_taken_stays_with_its_holder(cut: bool) -> None:
    """Also when the other one comes while the holder's connection is down."""
    with proxied(3, lambda _: NONE) as (proxy, crew):
        call_often(crew, 3)
        if cut:
            proxy.close_door()
        _, joined = start(proxy.port, 1, 3, timeout=LIMIT)
        proxy.open_door()
        call_often(crew, 20)
        with pytest.raises(zcoll.RejectedError, match="rank 1 is taken by replica 1"):
            joined.result(LIMIT)
        call_often(crew, 3)

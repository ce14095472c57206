"""Which way the messages of a group go, and what becomes of those of a broken lane."""

from __future__ import annotations

import errno
import functools
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from group import LIMIT, SECRET, Crew, Replica
from job import clean_environment
from ports import tcp_port
from probing import prober, target

import zcoll
from zcoll.engine.engine import Engine
from zcoll.transport.lane import hub
from zcoll.transport.lane import segment as segments
from zcoll.transport.lane.ring import CONSUMED, PUBLISHED

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs memfd")


def ways_of(crew: Crew, secret: str | None = None) -> dict[int, str]:
    """What rank 0 says that the messages of the others go by."""
    deadline = time.monotonic() + LIMIT
    with prober(target(crew.port, secret)) as one:
        while True:  # the agreement on a lane may end behind a call
            ways = one.ask(LIMIT).status.ways
            if len(ways) == crew.size - 1 or time.monotonic() > deadline:
                return ways


def add_arrays(comm: zcoll.Communicator) -> list[float]:
    """Large and small sums, which are the same on every replica."""
    large = np.full(500_000, 1.0 + comm.replica_rank)
    sums = [float(comm.allreduce(large)[-1]) for _ in range(3)]
    return [*sums, comm.allreduce(1.0)]


@pytest.fixture(autouse=True)
def _in_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZCOLL_LANE", "auto")


@pytest.mark.parametrize("secret", [None, SECRET])
def test_replicas_of_one_host_meet_in_shared_memory(secret: str | None) -> None:
    with Crew(3, secret=secret) as crew:
        assert crew.run(add_arrays) == [[6.0, 6.0, 6.0, 3.0]] * 3
        assert ways_of(crew, secret) == dict.fromkeys((1, 2), "shared memory")
        assert crew.run(add_arrays) == [[6.0, 6.0, 6.0, 3.0]] * 3


@pytest.mark.parametrize(
    ("lane", "way"), [("zmq", "ZeroMQ (ZCOLL_LANE=zmq)"), (None, "shared memory")]
)
def test_it_can_be_turned_off(
    lane: str | None, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ZCOLL_LANE")
    if lane is not None:
        monkeypatch.setenv("ZCOLL_LANE", lane)
    with Crew(2) as crew:
        assert crew.run(add_arrays) == [[3.0, 3.0, 3.0, 2.0]] * 2
        assert ways_of(crew) == {1: way}


def test_a_way_that_there_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZCOLL_LANE", "shm")
    with pytest.raises(zcoll.ConfigurationError, match="ZCOLL_LANE='shm'"):
        zcoll.connect("127.0.0.1", 1, 0, 2)


def test_a_machine_whose_memory_order_is_another(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(segments.platform, "machine", lambda: "aarch64")  # type: ignore[attr-defined]
    with caplog.at_level(logging.DEBUG, "zcoll.lane"), Crew(2) as crew:
        assert crew.run(add_arrays) == [[3.0, 3.0, 3.0, 2.0]] * 2
        (way,) = ways_of(crew).values()
        assert way.startswith("ZeroMQ (")
        assert "aarch64" in way
        assert "aarch64" in caplog.text


@pytest.mark.parametrize("at", ["rank 0", "a replica"])
def test_what_all_get_cannot_be_shared(
    at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it goes to each through its own ring."""

    def fail(*_: object) -> None:
        raise segments.UnavailableError("for this test")

    if at == "rank 0":
        monkeypatch.setattr(hub, "Regions", fail)
    else:
        monkeypatch.setattr(segments.Segment, "claim", fail)
    with Crew(3) as crew:
        assert len(ways_of(crew)) == 2
        assert crew.run(add_arrays) == [[6.0, 6.0, 6.0, 3.0]] * 3
        assert ways_of(crew) == dict.fromkeys((1, 2), "shared memory")


def refuse(descriptor: int, start: int, size: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_no_room_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with Crew(2) as crew:
        assert crew.run(add_arrays) == [[3.0, 3.0, 3.0, 2.0]] * 2
        assert ways_of(crew) == {1: "ZeroMQ (no room for shared memory)"}


SIZES = [*range(60_000, 70_000, 500), *range(20_000, 120_000, 1100)]
NO_MORE_ROOM = dict.fromkeys((1, 2), "ZeroMQ (no more room for shared memory)")


@pytest.mark.parametrize("allowed", range(8))
def test_no_room_later(
    allowed: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever it happens, what has not gone goes by ZeroMQ, in its order."""
    reserve, left = os.posix_fallocate, [allowed]

    def sometimes(descriptor: int, start: int, size: int) -> None:
        if not left[0]:
            refuse(descriptor, start, size)
        left[0] -= 1
        reserve(descriptor, start, size)

    with Crew(3) as crew:
        assert len(ways_of(crew)) == 2
        monkeypatch.setattr(os, "posix_fallocate", sometimes)
        for _ in range(2):
            assert crew.run(add_arrays) == [[6.0, 6.0, 6.0, 3.0]] * 3
        # With a little room, all may find their way through the lane.
        assert allowed or "going on by ZeroMQ" in caplog.text
        while not allowed and ways_of(crew) != NO_MORE_ROOM:
            time.sleep(0.01)  # until rank 0's next tick


STRANGER = """
import encodings.idna, hashlib, hmac, os, sys
import zcoll.engine.opening, zcoll.engine.waiting  # which the other user cannot read
os.setgroups([]); os.setgid(65534); os.setuid(65534)
with zcoll.connect("127.0.0.1", int(sys.argv[1]), 1, 2, secret=sys.argv[2]) as comm:
    assert comm.allreduce(bytes(300_000)) == bytes(600_000)
    comm.barrier()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_goes_by_zeromq() -> None:
    port = tcp_port()
    connect = functools.partial(zcoll.connect, secret=SECRET, timeout=LIMIT)
    rank_0 = Replica(0, lambda: connect("127.0.0.1", port, 0, 2))
    command = [sys.executable, "-c", STRANGER, str(port), SECRET]
    with subprocess.Popen(command, env=clean_environment(ZCOLL_LANE="auto")) as other:
        try:
            sent = rank_0.start(lambda comm: comm.allreduce(bytes(300_000)))
            assert sent.result(LIMIT) == bytes(600_000)
            with prober(target(port, SECRET)) as one:
                ways = one.ask(LIMIT).status.ways
            assert ways == {1: "ZeroMQ (another user (uid 65534))"}
            rank_0.start(lambda comm: comm.barrier()).result(LIMIT)
            rank_0.leave()
            assert other.wait(LIMIT) == 0
            rank_0.left.result(LIMIT)
        finally:
            other.kill()


def lane_of(comm: zcoll.Communicator) -> Any:
    """The lane of a replica that is not rank 0, once both sides use it."""
    engine: Any = comm._engine
    wait_until(lambda: engine._lane._end is not None and engine._lane._end.begun)
    return engine._lane._end._lane


@pytest.mark.parametrize("by", [0, 1])
def test_a_message_that_makes_no_sense(by: int) -> None:
    """Whoever reads it gives the other side up, and says why."""

    def spoil(comm: zcoll.Communicator) -> None:
        if comm.replica_rank == 1:
            lane = lane_of(comm)
            ring = lane._views[2 if by == 1 else 3]
            ring[:] = b"\xee" * len(ring)
            words = lane._own if by == 1 else lane._other
            words[PUBLISHED] += 1
            wait_until(lambda: comm._engine.over)
        comm.barrier()

    with Crew(2) as crew:
        errors = crew.errors(zcoll.ReplicaLostError, spoil)
        assert any("makes no sense" in str(error) for error in errors)


@pytest.mark.parametrize("by", [0, 1])
def test_an_acknowledgement_that_makes_no_sense(by: int) -> None:
    def spoil(comm: zcoll.Communicator) -> None:
        if comm.replica_rank == 1:
            lane = lane_of(comm)
            words = lane._own if by == 1 else lane._other
            words[CONSUMED] = 2**40
        for _ in range(2):  # rank 0 may have its own part of the first one
            comm.barrier()

    with Crew(2) as crew:
        assert len(crew.errors(zcoll.ReplicaLostError, spoil)) == 2


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def without_ticks(comm: zcoll.Communicator) -> None:
    """Let nothing become due in this engine, and in no other one."""
    assert isinstance(comm._engine, Engine)
    comm._engine._tick_at = time.monotonic() + 10 * LIMIT


def test_no_call_waits_for_the_next_tick() -> None:
    """What waits for room in the ring goes as soon as there is some."""

    def task(comm: zcoll.Communicator) -> list[int]:
        without_ticks(comm)
        made = []
        for size in SIZES:
            made.append(len(comm.broadcast(bytes(size), timeout=LIMIT)))
            made.append(len(comm.gather(bytes(size), timeout=LIMIT) or ""))
        return made

    with Crew(2) as crew:
        crew.run(lambda comm: comm.barrier())
        assert len(ways_of(crew)) == 1
        first, other = crew.run(task)
    assert first == [n for size in SIZES for n in (size, 2)]
    assert other == [n for size in SIZES for n in (size, 0)]


def test_who_sleeps_is_woken_for_what_comes_in_chunks() -> None:

    def task(comm: zcoll.Communicator) -> int:
        without_ticks(comm)
        total = 0
        for _ in range(30):
            if comm.replica_rank == 0:
                time.sleep(0.003)  # the other one sleeps by then, or it does not
            total += len(comm.allgather(bytes(20_000), timeout=LIMIT))
            comm.barrier(timeout=LIMIT)
        return total

    with Crew(2) as crew:
        crew.run(lambda comm: comm.barrier())
        assert len(ways_of(crew)) == 1
        assert crew.run(task) == [60, 60]

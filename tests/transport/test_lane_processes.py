"""The lane between two processes, one of which may die at any instant."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from job import clean_environment
from lane_child import Side, check, message

from zcoll.engine.bell import Bell
from zcoll.transport.lane.bell import Ringer, bell_ticket
from zcoll.transport.lane.lane import SIZE, Lane
from zcoll.transport.lane.segment import Segment, Ticket

CHILD = Path(__file__).with_name("lane_child.py")
LIMIT = 30.0


@contextlib.contextmanager
def other(what: str, count: int) -> Iterator[tuple[Side, subprocess.Popen[str]]]:
    """This side of a lane, and the process on its other side."""
    segment, bell = Segment.create(SIZE), Bell()
    asked = {
        "memory": asdict(segment.ticket),
        "bell": asdict(bell_ticket(bell.fd)),
        "what": what,
        "count": count,
        "seed": 3,
    }
    with subprocess.Popen(
        [sys.executable, CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=clean_environment(),
        text=True,
    ) as child:
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(json.dumps(asked) + "\n")
            child.stdin.flush()
            ticket = Ticket.read(json.loads(child.stdout.readline()))
            side = Side(Lane(segment, Ringer(ticket), made=True), bell)
            yield side, child
            side.close()
        finally:
            child.kill()


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) == before


def test_messages_there_and_back() -> None:
    """Several are on their way at a time, and both sides sleep in between."""
    count, chance = 1500, random.Random(5)
    with other("echo", count) as (side, child):
        sent: deque[int] = deque()
        for number in range(count):
            side.send(message(number, chance))
            sent.append(number)
            while len(sent) > chance.randint(0, 12) or (sent and number == count - 1):
                side.wait()
                while (frames := side.lane.take()) is not None:
                    check(frames, sent.popleft())
                side.lane.flush()
                side.lane.ring()
        assert child.wait(LIMIT) == 0


@pytest.mark.parametrize("seed", range(6))
def test_a_writer_is_killed(seed: int) -> None:
    """What can be read afterwards is whole, in order, and without a gap."""
    chance = random.Random(seed)
    with other("write", 10**9) as (side, child):
        number, last = 0, chance.randint(0, 400)
        while number < last:
            side.wait()
            while number < last and (frames := side.lane.take()) is not None:
                check(frames, number)
                number += 1
        time.sleep(chance.random() / 50)
        child.kill()
        child.wait(LIMIT)
        while (frames := side.lane.take()) is not None:
            check(frames, number)
            number += 1
        assert number >= last


def test_a_reader_is_killed() -> None:
    """Nothing blocks, nothing is raised, and nobody is killed by a signal."""
    chance = random.Random(1)
    with other("echo", 10**9) as (side, child):
        for number in range(50):
            side.send(message(number, chance))
        child.kill()
        child.wait(LIMIT)
        for number in range(200):
            side.send(message(number, chance))
        assert side.lane.backlog

"""What the lane's parts cost: two processes, without ZeroMQ and the protocol.

Prints the time of a message there and back while both sides look, and while both
sleep and are woken by the bell; and the rate of large messages, copied out.

    python tools/bench/lane.py
"""

from __future__ import annotations

import multiprocessing
import os
import select
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict
from multiprocessing.connection import Connection

import click

from zcoll.engine.bell import Bell
from zcoll.payload import Buffer
from zcoll.transport.lane.bell import Ringer, bell_ticket
from zcoll.transport.lane.lane import SIZE, Lane, fence
from zcoll.transport.lane.segment import Segment, Ticket

ROUNDS = 5000
SIZES = (100, 1_000, 10_000, 60_000)  # bytes
CHUNK = 1024 * 1024
TOTAL = 256 * CHUNK


def look(lane: Lane, bell: Bell) -> None:
    """Wait without sleeping."""
    while not lane.waiting:
        os.sched_yield()


def sleep(lane: Lane, bell: Bell) -> None:
    """Wait on the bell alone, as a replica does that has looked for a while."""
    while True:
        lane.lie_down()
        fence()
        if not lane.waiting:
            select.select([bell.fd], [], [], 10)
        lane.get_up()
        bell.silence()
        if lane.waiting:
            return


def send(lane: Lane, frames: list[Buffer]) -> None:
    """Send a message, and wake the other side if it sleeps."""
    lane.send(frames)
    fence()
    lane.ring()


def answer(lane: Lane, bell: Bell, wait: Callable[[Lane, Bell], None]) -> None:
    """The other side of the round trips."""
    for _ in range(ROUNDS):
        wait(lane, bell)
        frames = lane.take()
        assert frames is not None
        send(lane, [frames[0]])


def take(lane: Lane, bell: Bell) -> None:
    """The other side of the large messages: it copies them out."""
    held = bytearray(CHUNK)
    taken = 0
    while taken < TOTAL:
        look(lane, bell)
        while (frames := lane.take()) is not None:
            held[:] = frames[1]
            taken += len(frames[1])
    send(lane, [b"done"])


def other(pipe: Connection) -> None:
    """The other process."""
    ticket, ring = pipe.recv()
    bell = Bell()
    lane = Lane(Segment.open(Ticket(**ticket)), Ringer(Ticket(**ring)), made=False)
    pipe.send(asdict(bell_ticket(bell.fd)))
    for _ in SIZES:
        answer(lane, bell, look)
        answer(lane, bell, sleep)
    take(lane, bell)
    pipe.recv()


def round_trips(
    lane: Lane, bell: Bell, wait: Callable[[Lane, Bell], None], size: int
) -> str:
    """Measure the round trips of one size."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        send(lane, [bytes(size)])
        wait(lane, bell)
        lane.take()
        times.append(time.perf_counter() - start)
    times.sort()
    p99 = times[len(times) * 99 // 100]
    return f"{statistics.median(times) * 1e6:8.1f} {p99 * 1e6:8.1f}"


def main() -> None:
    """Measure everything."""
    pipe, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=other, args=(theirs,))
    process.start()
    segment, bell = Segment.create(SIZE), Bell()
    pipe.send((asdict(segment.ticket), asdict(bell_ticket(bell.fd))))
    lane = Lane(segment, Ringer(Ticket(**pipe.recv())), made=True)
    click.echo("there and back, us: bytes, looking median p99, sleeping median p99")
    for size in SIZES:
        looking = round_trips(lane, bell, look, size)
        sleeping = round_trips(lane, bell, sleep, size)
        click.echo(f"{size:8} {looking} {sleeping}")
    chunk = memoryview(bytes(CHUNK))
    start = time.perf_counter()
    for _ in range(TOTAL // CHUNK):
        send(lane, [b"head", chunk])
        while lane.backlog:
            os.sched_yield()
            lane.flush()
    look(lane, bell)
    rate = TOTAL / (time.perf_counter() - start)
    click.echo(
        f"large messages: {rate / 1e9:.2f} GB/s, {segment.reserved} bytes in use"
    )
    pipe.send("end")
    process.join()


if __name__ == "__main__":
    main()

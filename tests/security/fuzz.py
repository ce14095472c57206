"""Malformed inputs, many of them, to a running group: ``tools/fuzz``."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import click
from group import LIMIT, SECRET
from security.attacks import flood
from security.garbage import misbehave
from security.insider import insider
from security.victim import stop, victim

MIB = 1 << 20
WARM_UP = 2000  # inputs after which memory is looked at first
ALLOWED = 32 * MIB


def _say(what: str, count: int, seconds: float, growth: int) -> None:
    click.echo(
        f"{what}: {count:,} malformed inputs in {seconds:.0f} s, rank 0 is up, "
        f"its memory grew by {growth / MIB:.1f} MiB"
    )
    if growth > ALLOWED:
        raise SystemExit(f"more than {ALLOWED // MIB} MiB")


def say_it_admitted(count: int, seed: int, secret: str | None) -> None:
    """A replica that is admitted says it; then the group comes together."""
    with victim(secret, size=4) as target, ThreadPoolExecutor(3) as pool:
        with insider(target.port, secret) as other:
            misbehave(other, WARM_UP, seed)
            before, start = target.memory, time.monotonic()
            misbehave(other, count, seed + 1)
            growth, seconds = target.memory - before, time.monotonic() - start
        members = [
            one.result(LIMIT)
            for one in [pool.submit(target.join, rank) for rank in (1, 2, 3)]
        ]
        for value in range(100):
            calls = [pool.submit(comm.allreduce, value) for comm in members]
            if [call.result(LIMIT) for call in calls] != [value] * 3:
                raise SystemExit("a wrong result")
        for done in [pool.submit(stop, comm) for comm in members]:
            done.result(LIMIT)
        if "Traceback" in target.finish():
            raise SystemExit("rank 0 has logged an exception")
    way = "over TCP" if secret else "over ipc"
    _say(f"an admitted connection {way}", count, seconds, growth)


def say_it_outside(count: int, seed: int) -> None:
    """Strangers say it to the port of a group that goes on with its calls."""
    with victim(SECRET) as target:
        comm = target.join()
        flood(target.port, WARM_UP, seed)
        before, start, done = target.memory, time.monotonic(), 0
        while done < count:
            some = min(1000, count - done)
            flood(target.port, some, seed + 1 + done)
            done += some
            if comm.allreduce(done, timeout=LIMIT) != done:
                raise SystemExit("a wrong result")
        growth, seconds = target.memory - before, time.monotonic() - start
        stop(comm)
        if "Traceback" in target.finish():
            raise SystemExit("rank 0 has logged an exception")
    _say("the bare port", count, seconds, growth)


@click.command()
@click.option("--count", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
def main(count: int, seed: int) -> None:
    """Say so many malformed things to each side of the door."""
    say_it_admitted(count, seed, SECRET)
    say_it_admitted(count, seed, None)
    say_it_outside(count, seed)


if __name__ == "__main__":
    main()

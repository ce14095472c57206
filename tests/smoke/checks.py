"""The eight checks of ``tools/smoke``: a job and its faults, seen from outside.

Each starts a job of its own and judges it by exit codes and by what was printed.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from smoke.stage import CheckFailedError, expect, wait_for_end, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from smoke.stage import Member, Stage

REPLICAS = 4  # beside rank 0
ALL = REPLICAS + 1
KILLED_LIMIT = 5.0  # seconds in which all others must know of a death
LATE = 20.0  # seconds that a late replica is late
FLOODED = 2000  # connections that make a flood


def wordcount(stage: Stage) -> str:
    """Check that a job ends well on all replicas, with the right result."""
    stage.prepare(stage.wordcount_job(), REPLICAS)
    members = stage.start()
    wait_for_end(members)
    _expect_success(members)
    found = re.search(r"(\d+) replicas counted ([\d,]+) words", members[0].log())
    expect(found is not None, "rank 0 has printed no count")
    assert found is not None
    expect(int(found[1]) == ALL, f"{found[1]} replicas have counted, not {ALL}")
    alone = stage.count_alone()
    expect(found[2] == alone, f"together {found[2]} words, one process {alone}")
    return f"{found[2]} words, as one process counts"


def ping(stage: Stage) -> str:
    """Check that rank 0 answers to those who know the secret, and to no others."""
    members = _start_rounds(stage)
    code, text = stage.ask("--wait", "20", secret=True)
    expect(code == 0, f"with the secret, ping exits with {code}:\n{text}")
    expect(f"{ALL} of {ALL} replicas, the group is complete" in text, text)
    code, refused = stage.ask("--count", "1", secret=False)
    expect(code == 3, f"without the secret, ping exits with {code}:\n{refused}")
    expect("has a secret, and none is set here" in refused, refused)
    _finish_rounds(stage, members)
    times = re.search(r"median/p99/max = [\d.]+/([\d.]+)", text)
    return f"median {times[1]} ms" if times else "answered"


def group_ping(stage: Stage) -> str:
    """Check that a group can check itself: a table of hosts and times."""
    stage.prepare("-m zcoll ping --group", REPLICAS)
    members = stage.start()
    wait_for_end(members)
    _expect_success(members)
    row = re.compile(
        r"^(?:\[0\] )? *(\d+)  (\S+) +\d+ +(?:-|[\d.]+)(?: +[\d.]+){3}$", re.M
    )
    rows = row.findall(members[0].log())
    expect([rank for rank, _ in rows] == [str(rank) for rank in range(ALL)], str(rows))
    hosts = sorted(host for _, host in rows)
    expect(hosts == sorted(member.host for member in members), str(rows))
    return f"{len(rows)} rows"


def killed(stage: Stage) -> str:
    """Check that all others end soon when a replica is killed, and say who it was."""
    members = _start_rounds(stage)
    victim, others = members[2], [*members[:2], *members[3:]]
    rank = _rank_of(victim)
    victim.kill()
    wait_for_end([victim, *others])
    took = max(member.ended_at() for member in others) - victim.ended_at()
    for member in others:
        expect(member.exit_code() != 0, f"{member.name} ended as if all was well")
        _expect_said(
            member, rf"replica {rank} \({victim.host}, pid \d+\) (is lost|exited)"
        )
    limit = KILLED_LIMIT
    expect(took <= limit, f"the last one ended after {took:.1f} s, not {limit:.1f} s")
    return f"all others ended within {took:.1f} s (the limit: {limit:.1f} s)"


def paused(stage: Stage) -> str:
    """Check that both sides tell when rank 0 stands still for too long."""
    members = _start_rounds(stage)
    zero, others = members[0], members[1:]
    at = time.time()
    zero.pause()
    try:
        wait_for_end(others)
    finally:
        zero.resume()
    took = max(member.ended_at() for member in others) - at
    for member in others:
        expect(member.exit_code() != 0, f"{member.name} ended as if all was well")
        _expect_said(member, rf"replica 0 \({zero.host}, pid \d+\) is lost")
    wait_for_end([zero])
    expect(zero.exit_code() != 0, "rank 0 ended as if all was well")
    _expect_said(zero, r"replica [1-4] \(\S+, pid \d+\) (is lost|exited)")
    return f"the replicas ended within {took:.1f} s, rank 0 when it went on"


def cut(stage: Stage) -> str:
    """Check that a network that is away for a second does not harm."""
    members = _start_rounds(stage)
    victim = members[2]
    victim.cut()
    time.sleep(1)  # what the check is about
    victim.mend()
    mended, made = time.monotonic(), _rounds(members[0])
    wait_until(lambda: _rounds(members[0]) >= made + 20, "rounds after the cut")
    took = time.monotonic() - mended
    _finish_rounds(stage, members)
    return f"{_rounds(members[0])} rounds, 20 of them within {took:.1f} s after it"


def late(stage: Stage) -> str:
    """Check that a group waits for those who are late, rank 0 too."""
    stage.prepare(stage.rounds_job(), REPLICAS)
    stage.start_replicas(1)  # there is no rank 0, nor its name
    zero = stage.start_rank_0()
    at = time.monotonic()
    stage.start_replicas(REPLICAS - 1)
    code, text = stage.ask("--wait", "10", "--reachable", secret=True)
    expect(code == 0, f"while the group gathers, ping exits with {code}:\n{text}")
    expect("the group is not complete" in text, text)
    time.sleep(max(0.0, at + LATE - time.monotonic()))  # what the check is about
    members = [zero, *stage.start_replicas(REPLICAS)]
    _await_rounds(zero)
    _finish_rounds(stage, members)
    return f"complete {LATE:g} s after rank 0 came"


def flooded(stage: Stage) -> str:
    """Check that a stranger who floods rank 0's port does not harm."""
    members = _start_rounds(stage)
    stranger = stage.flood()
    wait_until(lambda: _connections(stranger) >= FLOODED, "a flood")
    before = _rounds(members[0])
    wait_until(lambda: _rounds(members[0]) >= before + 40, "rounds in the flood")
    expect(stranger.exit_code() is None, f"the flood ended:\n{stranger.log()}")
    _finish_rounds(stage, members)
    return f"{_connections(stranger)} connections, {_rounds(members[0])} rounds"


CHECKS: tuple[Callable[[Stage], str], ...] = (
    wordcount,
    ping,
    group_ping,
    killed,
    paused,
    cut,
    late,
    flooded,
)


# --- what several of them do ------------------------------------------------------


def _start_rounds(stage: Stage) -> Sequence[Member]:
    """Start the smoke job, and wait until it is under way."""
    stage.prepare(stage.rounds_job(), REPLICAS)
    members = stage.start()
    _await_rounds(members[0])
    return members


def _await_rounds(zero: Member) -> None:
    wait_until(lambda: _rounds(zero) > 0 or zero.exit_code() is not None, "a round")
    expect(zero.exit_code() is None, f"rank 0 has ended:\n{zero.log()}")


def _finish_rounds(stage: Stage, members: Sequence[Member]) -> None:
    """Let the smoke job end, and check that all went well."""
    stage.finish()
    wait_for_end(members)
    _expect_success(members)
    for member in members:
        _expect_said(member, r"\d+ rounds, every value is right")


def _rounds(member: Member) -> int:
    """How many rounds the smoke job has made, by its last line about that."""
    return max(map(int, re.findall(r"round (\d+)", member.log())), default=0)


def _connections(stranger: Member) -> int:
    """How many connections the flood has made."""
    return max(map(int, re.findall(r"(\d+) connections", stranger.log())), default=0)


def _rank_of(member: Member) -> str:
    found = re.search(r"rank (\d+) of", member.log())
    if found is None:
        raise CheckFailedError(f"{member.name} has not told its rank:\n{member.log()}")
    return found[1]


def _expect_success(members: Sequence[Member]) -> None:
    for member in members:
        code = member.exit_code()
        expect(code == 0, f"{member.name} exited with {code}:\n{member.log()}")


def _expect_said(member: Member, pattern: str) -> None:
    text = member.log()
    expect(
        re.search(pattern, text) is not None,
        f"{member.name} has not said {pattern!r}:\n{text}",
    )

"""How soon faults of connections are repaired, or noticed: with default settings.

Each function makes a group of processes, does the harm, and gives the seconds until
every replica had its result, or its error. As a program it prints a table.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from faults import acts, netns, remote
from faults.harm import NONE, Fault
from faults.proxy import Proxy
from faults.puppets import Nursery
from group import SECRET
from ports import tcp_port

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from faults.puppets import Puppet

MEBI = 1 << 20
SIZE = 3
BLIP = 2.0  # seconds
WINDOW = 2.0  # seconds; the default, as are the next two together
SILENCE = 12.0
LIMIT = 60.0  # seconds


@dataclass(frozen=True)
class Row:
    """A fault, and what is promised.

    Attributes:
        fault: What happens.
        outcome: What zcoll does about it.
        bound: Within so many seconds.
        command: What provokes it.
        measure: Does it once, and gives the seconds.
    """

    fault: str
    outcome: str
    bound: float
    command: str
    measure: Callable[[Nursery], float]


@contextlib.contextmanager
def behind_a_proxy(
    nursery: Nursery, faults: Callable[[int], Fault] = lambda _: NONE
) -> Iterator[tuple[Proxy, list[Puppet]]]:
    """Make a group of processes that reach rank 0 through a proxy."""
    port = tcp_port()
    with Proxy(port, faults) as proxy, nursery.puppets(SIZE) as puppets:
        for rank, puppet in enumerate(puppets):
            mine = proxy.port if rank else port
            puppet.tell(acts.join, mine, rank, SIZE, SECRET, {})
        for puppet in puppets:
            puppet.expect("ended", LIMIT)
        yield proxy, puppets


def until_all_have_it(puppets: list[Puppet], since: float) -> float:
    """Wait until a call has ended well everywhere."""
    return max(puppet.expect("ended", LIMIT).at for puppet in puppets) - since


def until_all_know(puppets: list[Puppet], since: float) -> float:
    """Wait until every replica has been told of a loss."""
    ends = [puppet.expect_end(LIMIT) for puppet in puppets]
    for news in ends:
        if not isinstance(news.value, zcoll.ReplicaLostError):
            raise AssertionError(f"not lost: {news}")
    return max(news.at for news in ends) - since


def tell_all(puppets: list[Puppet], act: Callable[..., Any], *arguments: Any) -> None:
    """Let every replica do the same."""
    for puppet in puppets:
        puppet.tell(act, *arguments)


def cut(nursery: Nursery) -> float:
    """All connections are cut, and then a call is made."""
    with behind_a_proxy(nursery) as (proxy, puppets):
        at = time.monotonic()
        proxy.cut()
        tell_all(puppets, acts.allreduce, 1)
        return until_all_have_it(puppets, at)


def changed(nursery: Nursery) -> float:
    """A byte of a large payload is changed on its way to a replica."""
    harm = Fault(flip_down=MEBI)
    with behind_a_proxy(nursery, lambda n: harm if n == 0 else NONE) as (_, puppets):
        at = time.monotonic()
        tell_all(puppets, acts.reduce_array, MEBI // 2)
        until_all_have_it(puppets, at)
        at = time.monotonic()
        tell_all(puppets, acts.reduce_array, MEBI)
        return until_all_have_it(puppets, at)


def down(nursery: Nursery) -> float:
    """All connections are cut, and none is let through any more."""
    with behind_a_proxy(nursery) as (proxy, puppets):
        tell_all(puppets, acts.until_lost, acts.barrier)
        at = time.monotonic()
        proxy.close_door()
        return until_all_know(puppets, at)


def silent(nursery: Nursery) -> float:
    """All connections stand, and carry nothing any more."""
    with behind_a_proxy(nursery) as (proxy, puppets):
        tell_all(puppets, acts.until_lost, acts.barrier)
        at = time.monotonic()
        proxy.stall()
        return until_all_know(puppets, at)


def blip(nursery: Nursery) -> float:
    """The link between two hosts is down for two seconds."""
    with netns.hosts() as two, remote.group_on(two, nursery) as puppets:
        at = two.pull_the_cable()
        tell_all(puppets, acts.allreduce, 1)
        time.sleep(BLIP)
        two.plug_the_cable()
        return until_all_have_it(puppets, at)


def link_down(nursery: Nursery) -> float:
    """The link between two hosts goes down for good."""
    with netns.hosts() as two, remote.group_on(two, nursery) as puppets:
        tell_all(puppets, acts.until_lost, acts.barrier)
        return until_all_know(puppets, two.pull_the_cable())


def link_down_under_load(nursery: Nursery) -> float:
    """The link between two hosts goes down for good while it is busy."""
    with netns.hosts() as two, remote.group_on(two, nursery) as puppets:
        two.slow_down("100mbit")
        tell_all(puppets, acts.until_lost, acts.reduce_array, 100 * MEBI)
        time.sleep(0.5)
        return until_all_know(puppets, two.pull_the_cable())


_PROXY = "tools/test tests/faults/test_faults_proxy.py -k {}"
_CUTS = "tools/test tests/faults/test_faults_proxy_cuts.py -k {}"
_NETWORK = "tools/test tests/faults/test_faults_network.py -k {}"
_REPAIRED, _LOST = "the call completes", "`ReplicaLostError` everywhere"

ROWS = [
    Row("connection cut", _REPAIRED, WINDOW, _CUTS.format("repaired"), cut),
    Row("byte changed", _REPAIRED, WINDOW, _PROXY.format("changed"), changed),
    Row("connection down", _LOST, WINDOW + 1, _PROXY.format("outage"), down),
    Row("connection silent", _LOST, SILENCE + WINDOW, _PROXY.format("stall"), silent),
]
NETWORK_ROWS = [
    Row("blip of 2 s", _REPAIRED, 2 * BLIP + 1, _NETWORK.format("blip"), blip),
    Row("link down", _LOST, SILENCE + WINDOW, _NETWORK.format("stays_out"), link_down),
    Row(
        "link down under load",
        _LOST,
        SILENCE + WINDOW,
        _NETWORK.format("under_load"),
        link_down_under_load,
    ),
]


def main() -> None:
    """Measure every row, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=4)
    wanted = parser.parse_args()
    reason = netns.why_not("tc")
    rows = ROWS if reason else ROWS + NETWORK_ROWS
    sys.stdout.write(f"no hosts: {reason}\n" if reason else "")
    nursery = Nursery()
    try:
        with ThreadPoolExecutor(wanted.at_once) as pool:
            for row in rows:
                times = sorted(pool.map(row.measure, [nursery] * wanted.runs))
                median = statistics.median(times)
                sys.stdout.write(
                    f"| {row.fault} | {row.outcome} | `{row.command}` | "
                    f"{row.bound:g} s | {median:.2f} s | {times[-1]:.2f} s |\n"
                )
                sys.stdout.flush()
    finally:
        nursery.close()


if __name__ == "__main__":
    main()

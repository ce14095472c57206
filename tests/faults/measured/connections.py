"""Rows: connections that are cut, silent, or changed, and hosts that lose each other.

The rows of two hosts are there only where network namespaces can be made.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from faults import acts, netns, remote
from faults.harm import NONE, Fault
from faults.measured.row import Load, Row
from faults.phases import SIZE
from faults.proxy import Proxy
from ports import tcp_port

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from faults.phases import Way
    from faults.puppets import Nursery, Puppet

MEBI = 1 << 20
BLIP = 2.0  # seconds
LIMIT = 60.0  # seconds
REPAIRED = "the call completes, each contribution counted once"
LOST = "`ReplicaLostError` on every replica"


@contextlib.contextmanager
def behind_a_proxy(
    nursery: Nursery, way: Way, faults: Callable[[int], Fault] = lambda _: NONE
) -> Iterator[tuple[Proxy, list[Puppet]]]:
    """Make a group of processes that reach rank 0 through a proxy."""
    port = tcp_port()
    with Proxy(port, faults) as proxy, nursery.puppets(SIZE) as puppets:
        tuning = way.liveness._asdict()
        for rank, puppet in enumerate(puppets):
            mine = proxy.port if rank else port
            puppet.do(acts.use_the_wire)
            puppet.tell(acts.join, mine, rank, SIZE, way.secret, tuning)
        for puppet in puppets:
            puppet.expect("ended", LIMIT)
        yield proxy, puppets


@contextlib.contextmanager
def on_two_hosts(
    nursery: Nursery, way: Way
) -> Iterator[tuple[netns.Hosts, list[Puppet]]]:
    """Make a group of two processes on two hosts."""
    tuning = way.liveness._asdict()
    with netns.hosts() as two, remote.group_on(two, nursery, **tuning) as puppets:
        yield two, puppets


def tell_all(puppets: list[Puppet], act: Callable[..., object], argument: int) -> None:
    """Let every replica make the same call."""
    for puppet in puppets:
        puppet.tell(act, argument)


def until_all_have_it(puppets: list[Puppet], since: float) -> float:
    """Wait until a call has ended well everywhere."""
    ends = [puppet.expect("ended", LIMIT) for puppet in puppets]
    assert all(news.value in (None, len(puppets)) for news in ends), ends
    return max(news.at for news in ends) - since


def until_all_know(puppets: list[Puppet], since: float) -> float:
    """Wait until every replica has been told of a loss."""
    ends = [puppet.expect_end(LIMIT) for puppet in puppets]
    for news in ends:
        assert isinstance(news.value, zcoll.ReplicaLostError), repr(news.value)
    return max(news.at for news in ends) - since


def wait_for_a_loss(puppets: list[Puppet], nbytes: int = 0) -> None:
    """Let everybody make calls until one fails."""
    for puppet in puppets:
        if nbytes:
            puppet.tell(acts.until_lost, acts.reduce_array, nbytes)
        else:
            puppet.tell(acts.until_lost, acts.barrier)


def cut(nursery: Nursery, way: Way) -> float:
    """All connections are cut, and then a call is made."""
    with behind_a_proxy(nursery, way) as (proxy, puppets):
        at = time.monotonic()
        proxy.cut()
        tell_all(puppets, acts.allreduce, 1)
        return until_all_have_it(puppets, at)


def changed(nursery: Nursery, way: Way) -> float:
    """A byte of a large payload is changed on its way to a replica."""
    harm = Fault(flip_down=3 * MEBI // 2)

    def faults(index: int) -> Fault:
        return NONE if index else harm

    with behind_a_proxy(nursery, way, faults) as (proxy, puppets):
        at = time.monotonic()
        tell_all(puppets, acts.reduce_array, 2 * MEBI)
        seconds = until_all_have_it(puppets, at)
        assert proxy.reached == SIZE
        return seconds


def down(nursery: Nursery, way: Way) -> float:
    """All connections are cut, and none is let through any more."""
    with behind_a_proxy(nursery, way) as (proxy, puppets):
        wait_for_a_loss(puppets)
        at = time.monotonic()
        proxy.close_door()
        return until_all_know(puppets, at)


def silent(nursery: Nursery, way: Way) -> float:
    """All connections stand, and carry nothing any more."""
    with behind_a_proxy(nursery, way) as (proxy, puppets):
        wait_for_a_loss(puppets)
        at = time.monotonic()
        proxy.stall()
        return until_all_know(puppets, at)


def blip(nursery: Nursery, way: Way) -> float:
    """The link between two hosts is down for two seconds."""
    with on_two_hosts(nursery, way) as (two, puppets):
        at = two.pull_the_cable()
        tell_all(puppets, acts.allreduce, 1)
        time.sleep(BLIP)
        two.plug_the_cable()
        return until_all_have_it(puppets, at)


def link_down(nursery: Nursery, way: Way) -> float:
    """The link between two hosts goes down for good."""
    with on_two_hosts(nursery, way) as (two, puppets):
        wait_for_a_loss(puppets)
        return until_all_know(puppets, two.pull_the_cable())


def link_down_under_load(nursery: Nursery, way: Way) -> float:
    """The same, while it is busy with a large payload."""
    with on_two_hosts(nursery, way) as (two, puppets):
        two.slow_down("100mbit")
        wait_for_a_loss(puppets, 100 * MEBI)
        time.sleep(0.5)  # it would take 16 s
        return until_all_know(puppets, two.pull_the_cable())


def rows() -> Iterator[Row]:
    """All rows of this module."""
    yield _repaired("connection-cut", "connections cut, processes alive", cut)
    yield _repaired("byte-changed", "a byte changed on its way", changed)
    yield _lost("connection-down", "connections cut for good", down)
    yield _lost("connection-silent", "connections that carry nothing", silent)
    if not netns.why_not("tc"):
        yield _repaired("blip", "link between hosts down for 2 s", blip)
        yield _lost("link-down", "link between hosts down for good", link_down)
        yield _lost(
            "link-down-loaded",
            "the same, while it carries a large payload",
            link_down_under_load,
        )


def _repaired(key: str, fault: str, measure: Callable[[Nursery, Way], float]) -> Row:
    def bound(way: Way) -> float:
        return 2 * BLIP + 1 if measure is blip else way.liveness.reconnect_window

    return Row(
        key=key,
        fault=fault,
        answer=REPAIRED,
        bound=bound,
        measure=measure,
        load=Load.WAITS if measure is blip else Load.TIMED,
        ways=("tcp",),
    )


def _lost(key: str, fault: str, measure: Callable[[Nursery, Way], float]) -> Row:
    def bound(way: Way) -> float:
        return way.bound_of_death if measure is down else way.bound_of_silence

    return Row(
        key=key,
        fault=fault,
        answer=LOST,
        bound=bound,
        measure=measure,
        load=Load.LARGE if measure is link_down_under_load else Load.WAITS,
        ways=("tcp",),
    )

"""Two hosts, and what may happen to the cable between them."""

from __future__ import annotations

import functools
import os
import time
from typing import TYPE_CHECKING

import pytest
from faults import acts, netns, remote

import zcoll

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faults.puppets import Nursery, Puppet

MEBI = 1 << 20
SLACK = 1.0  # seconds that a bound allows for everything but the silence itself
BLIP = 2.0  # seconds
SLOW_MEBI = int(os.environ.get("TEST_SLOW_LINK_MIB", "10"))  # at 10 Mbit/s, twice

QUICK = {"heartbeat_interval": 0.5, "heartbeat_timeout": 1.5}
WINDOW = 0.5
SILENCE = 0.5 + 1.5 + WINDOW

why_not = functools.cache(netns.why_not)
with_tc = pytest.mark.parametrize("two", [("tc",)], indirect=True, ids=[""])
with_iptables = pytest.mark.parametrize("two", [("iptables",)], indirect=True, ids=[""])


@pytest.fixture
def two(request: pytest.FixtureRequest) -> Iterator[netns.Hosts]:
    """Give two hosts, or skip the test and say why."""
    reason = why_not(*getattr(request, "param", ()))
    if reason:
        pytest.skip(reason)
    with netns.hosts() as made:
        yield made


def time_of_loss(puppet: Puppet, lost: int) -> float:
    """When it has learnt that this replica is lost."""
    news = puppet.expect_end()
    assert isinstance(news.value, zcoll.ReplicaLostError), news
    assert news.value.rank == lost
    assert news.value.host
    return news.at


@pytest.mark.parametrize("short", [False, True], ids=["", "short_times"])
def test_a_blip_is_survived(two: netns.Hosts, nursery: Nursery, short: bool) -> None:
    """With short times it lasts longer than the heartbeats allow."""
    tuning = {**QUICK, "heartbeat_timeout": 1.0, "reconnect_window": 4.0}
    with remote.group_on(two, nursery, **(tuning if short else {})) as puppets:
        pulled = two.pull_the_cable()
        for puppet in puppets:
            puppet.tell(acts.allreduce, 1)
        time.sleep(BLIP)
        two.plug_the_cable()
        for puppet in puppets:
            news = puppet.expect("ended")
            assert news.value == 2
            assert news.at - pulled < 2 * BLIP + 1
        remote.leave(puppets)


def test_a_blip_while_joining_is_survived(two: netns.Hosts, nursery: Nursery) -> None:
    two.pull_the_cable()
    with nursery.puppets(2) as puppets:
        for rank, puppet in enumerate(puppets):
            puppet.tell(remote.join, two.names[rank], rank, 2, {})
        time.sleep(BLIP)
        two.plug_the_cable()
        for puppet in puppets:
            puppet.expect("ended")
        for puppet in puppets:
            puppet.tell(acts.allreduce, 1)
        for puppet in puppets:
            assert puppet.expect("ended").value == 2
        remote.leave(puppets)


def test_a_cable_that_stays_out_is_a_loss_for_both(
    two: netns.Hosts, nursery: Nursery
) -> None:
    with remote.group_on(two, nursery, **QUICK, reconnect_window=WINDOW) as puppets:
        pulled = two.pull_the_cable()
        for puppet in puppets:
            puppet.tell(acts.until_lost, acts.barrier)
        for puppet, lost in zip(puppets, (1, 0), strict=True):
            assert time_of_loss(puppet, lost) - pulled < SILENCE + SLACK


@with_tc
def test_a_cable_that_goes_under_load_is_a_loss_for_both(
    two: netns.Hosts, nursery: Nursery
) -> None:
    """What cannot be delivered must not hide that nobody answers."""
    two.slow_down("100mbit")
    with remote.group_on(two, nursery, **QUICK, reconnect_window=WINDOW) as puppets:
        for puppet in puppets:
            puppet.tell(acts.until_lost, acts.reduce_array, 40 * MEBI)
        time.sleep(0.5)  # it would take three seconds or more
        pulled = two.pull_the_cable()
        for puppet, lost in zip(puppets, (1, 0), strict=True):
            assert time_of_loss(puppet, lost) - pulled < SILENCE + SLACK


@with_tc
@pytest.mark.timeout(60 + 4 * SLOW_MEBI)
def test_a_slow_cable_is_not_a_silent_one(two: netns.Hosts, nursery: Nursery) -> None:
    """10 Mbit/s, and a payload that takes much longer than silence may last."""
    limit = 20 + 4 * SLOW_MEBI
    tuning = QUICK if SLOW_MEBI < 60 else {}
    two.slow_down("10mbit")
    with remote.group_on(two, nursery, **tuning) as puppets:
        for puppet in puppets:
            puppet.tell(remote.reduce_watched, SLOW_MEBI * MEBI)
        silence = puppets[0].expect("ended", limit).value
        puppets[1].expect("ended", limit)
        assert silence < 2  # a chunk takes 0.9 s, and beacons go between chunks
        # TCP repairs it; a busy machine may take it for silence once or twice.
        assert puppets[0].do(remote.reconnects) < 3
        remote.leave(puppets)


@with_iptables
def test_a_cable_that_loses_every_fifth_packet(
    two: netns.Hosts, nursery: Nursery
) -> None:
    with remote.group_on(two, nursery) as puppets:
        two.lose(0.2)
        for puppet in puppets:
            puppet.tell(remote.call_often, 8.0)
        made = [puppet.expect("ended", 40).value for puppet in puppets]
        two.lose_nothing(0.2)
        assert made[0] == made[1] > 0
        assert puppets[0].do(remote.reconnects) == 0
        remote.leave(puppets)

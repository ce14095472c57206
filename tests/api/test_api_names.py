"""Rank 0's name may get another address while replicas wait for it."""

from __future__ import annotations

import socket
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from group import LIMIT, SECRET, wait_for
from ports import tcp_port

import zcoll

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "rank0.test"
HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"

other_loopback = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only 127.0.0.1 is this host's"
)


class Names:
    """Stands for the system's look-up, and knows where NAME is, or that nobody is."""

    def __init__(self) -> None:
        self._look_up = socket.getaddrinfo
        self.address: str | None = None
        self.asked = threading.Event()

    def __call__(self, host: str, *args: Any, **kwargs: Any) -> Any:
        if host != NAME:
            return self._look_up(host, *args, **kwargs)
        self.asked.set()
        if self.address is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self._look_up(self.address, *args, **kwargs)

    def wait_until_asked_again(self) -> None:
        """Wait for a look-up that begins from now on."""
        self.asked.clear()
        wait_for(self.asked)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    names = Names()
    monkeypatch.setattr(socket, "getaddrinfo", names)
    return names


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def join(
    threads: ThreadPoolExecutor, address: str, port: int, rank: int, size: int
) -> Future[int]:
    """Join a group in a thread, and add up the ranks."""

    def task() -> int:
        with zcoll.connect(
            address, port, rank, size, secret=SECRET, timeout=LIMIT
        ) as comm:
            return comm.allreduce(rank)

    return threads.submit(task)


def test_a_name_that_resolves_later(names: Names, threads: ThreadPoolExecutor) -> None:
    port = tcp_port()
    replica = join(threads, NAME, port, 1, 2)
    names.wait_until_asked_again()
    names.address = HERE
    zero = join(threads, NAME, port, 0, 2)
    assert (zero.result(LIMIT), replica.result(LIMIT)) == (1, 1)


def test_a_name_that_resolved_to_where_nobody_is(
    names: Names, threads: ThreadPoolExecutor
) -> None:
    port = tcp_port()
    names.address = ELSEWHERE
    replica = join(threads, NAME, port, 1, 2)
    wait_for(names.asked)
    names.wait_until_asked_again()
    names.address = HERE
    zero = join(threads, HERE, port, 0, 2)
    assert (zero.result(LIMIT), replica.result(LIMIT)) == (1, 1)


@other_loopback
def test_rank_0_is_started_again_at_another_address(
    names: Names, threads: ThreadPoolExecutor
) -> None:
    port = tcp_port()
    names.address = HERE
    replica = join(threads, NAME, port, 1, 3)
    for _ in range(10):
        with pytest.raises(zcoll.RendezvousTimeoutError) as caught:
            zcoll.connect(HERE, port, 0, 3, secret=SECRET, timeout=1)
        if caught.value.missing == [2]:
            break
    assert caught.value.missing == [2]
    names.address = ELSEWHERE
    others = [
        join(threads, address, port, rank, 3)
        for rank, address in ((0, ELSEWHERE), (2, NAME))
    ]
    assert [each.result(LIMIT) for each in (*others, replica)] == [3, 3, 3]

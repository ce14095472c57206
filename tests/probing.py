"""Probes, and rank 0s for them that say what a test wants."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import pytest
from group import LIMIT, SECRET
from ports import ipc_port, tcp_port

from zcoll.launchers.settings import Target
from zcoll.probe import Prober, Reason, Unreachable, locate
from zcoll.security import Secret
from zcoll.transport.address import connect_place
from zcoll.transport.sockets import Heartbeat, Router
from zcoll.wire import Message, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OURS = Secret.of(SECRET)
THEIRS = Secret.of("another secret of the tests, long enough")
SOON = 0.5  # seconds for an answer that does not come
LONG = 20.0  # seconds that nobody waits for


def target(port: int, secret: Secret | str | None = None) -> Target:
    known = Secret.of(secret) if isinstance(secret, str) else secret
    return Target("127.0.0.1", port, known)


@contextlib.contextmanager
def prober(at: Target) -> Iterator[Prober]:
    with Prober(at, locate(at, LIMIT)) as one:
        yield one


def reason_of(at: Target, timeout: float = SOON) -> tuple[Reason, str]:
    """Why a group is not reached, and how people are told; never late."""
    started = time.monotonic()
    with pytest.raises(Unreachable) as caught, prober(at) as one:
        one.ask(timeout)
    taken = time.monotonic() - started
    assert taken < timeout + 1 + 2, "this was to be told soon after the limit"
    assert str(caught.value) == caught.value.text
    return caught.value.reason, caught.value.text


@contextlib.contextmanager
def router(
    secret: Secret | None, answer: Callable[[Message], list[bytes]] | None = None
) -> Iterator[int]:
    """A rank 0 that lets people in, and says just this; None: is busy for ever."""
    with contextlib.ExitStack() as held:
        port = tcp_port() if secret else held.enter_context(ipc_port())
        place = connect_place("127.0.0.1", port, secret=secret is not None)
        keys = None if secret is None else secret.keys()
        socket_ = Router(place, keys, Heartbeat(), None)
        held.callback(socket_.close)
        done = threading.Event()

        def serve() -> None:
            while answer is not None and not done.wait(0.005):
                socket_.admit()
                socket_.events()
                while (received := socket_.receive()) is not None:
                    for frame in answer(parse(received[1])):
                        socket_.send(received[0], [frame])

        thread = threading.Thread(target=serve)
        thread.start()
        held.callback(thread.join, LIMIT)
        held.callback(done.set)
        yield port


def nothing(_: Message) -> list[bytes]:
    return []

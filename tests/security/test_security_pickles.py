"""S1, S2, S6: no pickle of a stranger is read, by rank 0 or by a replica."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from group import LIMIT, SECRET, Replica
from ports import ipc_port, tcp_port
from security.canary import Canary, battery, contribution
from security.insider import HOME, finish, insider
from security.strangers import STRANGERS, false_rank_0, knock

import zcoll
from zcoll import operations
from zcoll.protocol.membership import Refusal
from zcoll.security import Secret
from zcoll.transport.address import bind_place
from zcoll.transport.lane.talk import is_talk
from zcoll.transport.sockets import Heartbeat, Router
from zcoll.wire import Kind, Message, pack, pack_fields, parse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOON = 8.0  # seconds in which a replica learns that the secrets differ


def pair(comm: zcoll.Communicator) -> Any:
    """A call whose result shows both values."""
    mine: Any = "mine"
    return comm.allreduce(mine, lambda a, b: (a, b))


def attack(port: int, canary: Canary) -> None:
    """Let every stranger say everything at the same time."""
    said = battery(canary.stream)
    with ThreadPoolExecutor(len(STRANGERS)) as pool:
        knocks = [pool.submit(knock, who, port, SECRET, said) for who in STRANGERS]
        for one in knocks:
            one.result(LIMIT)
    assert not canary.has_fired


def test_s01_no_pickle_of_a_stranger_is_read(tmp_path: Path) -> None:
    """Before the group is complete, in a call, and while it is torn down."""
    canary, control = Canary(tmp_path / "stranger"), Canary(tmp_path / "control")
    port = tcp_port()
    connect = functools.partial(
        zcoll.connect, HOME, port, 0, 2, secret=SECRET, timeout=LIMIT
    )
    rank_0 = Replica(0, connect)
    with insider(port, SECRET) as other:
        other.send(Message(Kind.PING))  # rank 0 is there
        other.expect(Kind.PONG)
        attack(port, canary)
        other.join()
        rank_0.joined.result(LIMIT)
        call = rank_0.start(pair)
        attack(port, canary)
        # The control: the same pickle, of one who knows the secret.
        other.send(contribution(control.stream))
        assert call.result(LIMIT) == ("mine", None)
        assert control.has_fired
        other.expect(Kind.OUTCOME)
        rank_0.leave()
        attack(port, canary)
        code = operations.TEARDOWN.code
        other.send(Message(Kind.CONTRIBUTE, operation=code, seq=2))
        rank_0.left.result(LIMIT)
    assert not canary.has_fired


def test_s01_no_pickle_is_read_of_who_has_not_been_admitted(tmp_path: Path) -> None:
    """The secret alone is not enough: HELLO has to be accepted first."""
    canary, control = Canary(tmp_path / "early"), Canary(tmp_path / "control")
    port = tcp_port()
    connect = functools.partial(
        zcoll.connect, HOME, port, 0, 2, secret=SECRET, timeout=LIMIT
    )
    rank_0 = Replica(0, connect)
    with insider(port, SECRET) as early, insider(port, SECRET) as other:
        other.join()
        rank_0.joined.result(LIMIT)
        call = rank_0.start(pair)
        for frames in battery(canary.stream):
            early.send_frames(frames)
        refused = early.expect(Kind.REJECT)  # its HELLO: the rank is taken
        assert Refusal.TAKEN.value.encode() in bytes(refused.body)
        assert not call.done()
        other.send(contribution(control.stream))
        assert call.result(LIMIT) == ("mine", None)
        assert control.has_fired
        assert not canary.has_fired
        rank_0.leave()
        code = operations.TEARDOWN.code
        other.send(Message(Kind.CONTRIBUTE, operation=code, seq=2))
        rank_0.left.result(LIMIT)


@pytest.mark.parametrize("stranger", ["NULL", "other secret"])
def test_s02_a_false_rank_0_is_not_believed(stranger: str, tmp_path: Path) -> None:
    canary = Canary(tmp_path / "canary")
    port = tcp_port()
    start = time.monotonic()
    with (
        false_rank_0(port, stranger, battery(canary.stream)),
        pytest.raises(zcoll.AuthenticationError, match="secret"),
    ):
        zcoll.connect(HOME, port, 1, 2, secret=SECRET, timeout=LIMIT)
    assert time.monotonic() - start < SOON
    assert not canary.has_fired


def test_s02_without_a_secret_no_rank_0_on_tcp_is_asked(tmp_path: Path) -> None:
    canary = Canary(tmp_path / "canary")
    port = tcp_port()
    with (
        false_rank_0(port, "NULL", battery(canary.stream)),
        pytest.raises(zcoll.RendezvousTimeoutError),
    ):
        zcoll.connect(HOME, port, 1, 2, timeout=1)
    assert not canary.has_fired
    with pytest.raises(zcoll.ConfigurationError, match="ZCOLL_SECRET"):
        zcoll.connect("192.0.2.1", port, 1, 2, timeout=1)


@contextlib.contextmanager
def rank_0_by_hand(port: int, stream: bytes) -> Iterator[None]:
    """A rank 0 that knows the secret, and whose results are this pickle."""
    place = bind_place(HOME, port, secret=True, bind_addr=None)
    router = Router(place, Secret.of(SECRET).keys(), Heartbeat())
    done = threading.Event()
    numbers = iter(range(1, 100))

    def answer(peer: bytes, message: Message) -> None:
        def say(kind: Kind, **fields: Any) -> None:
            number = next(numbers) if kind.numbered else 0
            said = Message(kind, session=7, number=number, **fields)
            router.send(peer, pack(said))

        if message.kind is Kind.HELLO:
            say(Kind.WELCOME)
            say(Kind.READY, body=pack_fields({"replicas": []}))
        elif message.kind is Kind.CONTRIBUTE:
            operation, seq = message.operation, message.seq
            say(Kind.OUTCOME, operation=operation, seq=seq, body=stream)

    def serve() -> None:
        while not done.wait(0.005):
            router.admit()
            router.events()
            while (received := router.receive()) is not None:
                if not is_talk(received[1]):  # which it does not enter into
                    answer(received[0], parse(received[1]))
        router.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(LIMIT)


def test_s02_the_control_fires(tmp_path: Path) -> None:
    """A rank 0 that knows the secret can run code on every replica."""
    canary = Canary(tmp_path / "canary")
    port = tcp_port()
    with rank_0_by_hand(port, canary.stream):
        comm = zcoll.connect(HOME, port, 1, 2, secret=SECRET, timeout=LIMIT)
        assert comm.allreduce(1) is None
        comm.close()
    assert canary.has_fired


@pytest.mark.parametrize("who", ["rank 0", "the replica"])
def test_s06_a_secret_on_one_side_only_is_told(who: str) -> None:
    theirs, mine = (SECRET, None) if who == "rank 0" else (None, SECRET)
    with contextlib.ExitStack() as held:
        port = tcp_port() if theirs else held.enter_context(ipc_port())
        connect = functools.partial(
            zcoll.connect, HOME, port, 0, 2, secret=theirs, timeout=LIMIT
        )
        rank_0 = Replica(0, connect)
        start = time.monotonic()
        with pytest.raises(zcoll.AuthenticationError) as caught:
            zcoll.connect(HOME, port, 1, 2, secret=mine, timeout=LIMIT)
        assert time.monotonic() - start < SOON
        holder, other = ("rank 0", "replica") if theirs else ("replica", "rank 0")
        assert f"{holder} has a secret" in str(caught.value)
        assert f"{other} has none" in str(caught.value)
        last = Replica(
            1,
            functools.partial(
                zcoll.connect, HOME, port, 1, 2, secret=theirs, timeout=LIMIT
            ),
        )  # undisturbed
        finish(rank_0, last)


def test_s06_another_secret_is_told() -> None:
    port = tcp_port()
    connect = functools.partial(zcoll.connect, HOME, port, timeout=LIMIT)
    rank_0 = Replica(0, lambda: connect(0, 2, secret=SECRET))
    start = time.monotonic()
    with pytest.raises(zcoll.AuthenticationError, match="refuses this replica's sec"):
        connect(1, 2, secret="a secret that is not the group's")
    assert time.monotonic() - start < SOON
    last = Replica(1, lambda: connect(1, 2, secret=SECRET))
    finish(rank_0, last)

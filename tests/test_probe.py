from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest
from group import LIMIT, SECRET, Replica
from ports import ipc_port, tcp_port
from probing import LONG, OURS, SOON, prober, reason_of, router, target

import zcoll
from zcoll import wire
from zcoll.probe import Prober, Reason, Unreachable, locate
from zcoll.transport.sockets import Heartbeat, Router
from zcoll.wire import Kind, Message, pack, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from zcoll.communicator import Communicator
    from zcoll.protocol.status import Status
    from zcoll.security import Secret

STATUS = {
    "package": "1.0",
    "num_replicas": 1,
    "replicas": [],
    "complete": True,
    "closing": False,
    "unranked": 0,
    "decided": 0,
    "call": None,
    "ways": {},
}


@pytest.fixture(params=[None, SECRET], ids=["ipc", "tcp"])
def secret(request: pytest.FixtureRequest) -> str | None:
    given: str | None = request.param
    return given


@pytest.fixture
def port(secret: str | None) -> Iterator[int]:
    with contextlib.ExitStack() as held:
        yield tcp_port() if secret else held.enter_context(ipc_port())


def start(port: int, rank: int, size: int, secret: str | None) -> Replica:
    return Replica(
        rank,
        functools.partial(
            zcoll.connect, "127.0.0.1", port, rank, size, secret=secret, timeout=LIMIT
        ),
    )


def leave(*replicas: Replica) -> None:
    for replica in replicas:
        replica.leave()
    for replica in replicas:
        replica.left.result(LIMIT)


def ask_until(one: Prober, wanted: Callable[[Status], bool]) -> Status:
    deadline = time.monotonic() + LIMIT
    while not wanted(status := one.ask(LIMIT).status):
        assert time.monotonic() < deadline, status
        time.sleep(0.01)
    return status


# --- groups ---------------------------------------------------------------


def test_a_gathering_group_tells_who_is_missing(port: int, secret: str | None) -> None:
    zero = start(port, 0, 2, secret)
    # Rank 0 may still be about to listen.
    deadline = time.monotonic() + LIMIT
    with prober(target(port, secret)) as one:
        status = None
        while status is None:
            with contextlib.suppress(Unreachable):
                status = one.ask(LIMIT).status
            assert time.monotonic() < deadline
        assert (status.whole, status.missing, status.num_replicas) == (False, [1], 2)
        assert [(each.rank, each.pid) for each in status.replicas] == [(0, os.getpid())]
        other = start(port, 1, 2, secret)
        status = ask_until(one, lambda status: status.whole)
    assert status.missing == []
    assert status.package == zcoll.__version__
    assert {each.host for each in status.replicas} == {socket.gethostname()}
    leave(zero, other)


def test_a_call_in_progress_is_shown_with_who_is_missing(
    port: int, secret: str | None
) -> None:
    def call(comm: Communicator) -> int:
        return comm.allreduce(1)

    replicas = [start(port, rank, 2, secret) for rank in range(2)]
    for replica in replicas:
        replica.joined.result(LIMIT)
    with prober(target(port, secret)) as one:
        assert one.ask(LIMIT).status.call is None
        first = replicas[0].start(call)
        found = ask_until(one, lambda status: status.call is not None).call
        assert found is not None
        assert (found.seq, found.missing) == (1, [1])
        assert found.operation.startswith("allreduce")
        assert "test_probe.py" in found.site
        assert [absence.rank for absence in found.absences] == [1]
        assert replicas[1].start(call).result(LIMIT) == first.result(LIMIT) == 2
        assert one.ask(LIMIT).status.decided == 1
    leave(*replicas)


def test_a_large_probe_comes_back(port: int, secret: str | None) -> None:
    replicas = [start(port, rank, 2, secret) for rank in range(2)]
    with prober(target(port, secret)) as one:
        replicas[0].joined.result(LIMIT)
        answer = one.ask(LIMIT, size=1024 * 1024)
    assert answer.status.num_replicas == 2
    assert 0 < answer.elapsed < LIMIT
    leave(*replicas)


# --- answers --------------------------------------------------------------


def pong(ping: Message, **fields: object) -> bytes:
    body = json.dumps({**STATUS, **fields}).encode()
    return b"".join(pack(Message(Kind.PONG, seq=ping.seq, body=body)))


def other_version(ping: Message) -> list[bytes]:
    frame = bytearray(pong(ping))
    frame[len(wire.MAGIC)] = wire.VERSION + 1
    return [bytes(frame)]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (other_version, Reason.OTHER_VERSION),
        (lambda _: [b"hello"], Reason.NOT_ZCOLL),
        (lambda ping: [pong(ping, replicas=7)], Reason.NOT_ZCOLL),
    ],
    ids=["other version", "junk", "other fields"],
)
@pytest.mark.parametrize("secret", [None, OURS], ids=["ipc", "tcp"])
def test_answers_that_are_none(
    secret: Secret | None, answer: Callable[[Message], list[bytes]], reason: Reason
) -> None:
    with router(secret, answer) as port:
        assert reason_of(target(port, secret), LONG)[0] is reason


def test_an_answer_to_an_earlier_probe_does_not_count() -> None:
    late: list[bytes] = []

    def answer(ping: Message) -> list[bytes]:
        late.append(pong(ping, decided=ping.seq))
        return late[-2:] if ping.seq > 1 else []

    with router(None, answer) as port, prober(target(port)) as one:
        with pytest.raises(Unreachable):
            one.ask(SOON)
        assert one.ask(LIMIT).status.decided == 2


def test_a_prober_finds_a_rank_0_that_was_started_again() -> None:
    known = target(tcp_port(), OURS)
    place = locate(known, LIMIT)
    with Prober(known, place) as one:
        for _ in range(2):
            rank0 = Router(place, OURS.keys(), Heartbeat(), None)
            served = threading.Event()

            def serve(rank0: Router = rank0, served: threading.Event = served) -> None:
                while not served.wait(0.005):
                    rank0.admit()
                    while (received := rank0.receive()) is not None:
                        rank0.send(received[0], [pong(parse(received[1]))])

            thread = threading.Thread(target=serve)
            thread.start()
            assert one.ask(LIMIT).status.whole is False
            served.set()
            thread.join(LIMIT)
            rank0.close()
            with pytest.raises(Unreachable) as caught:
                one.ask(LIMIT)
            assert caught.value.reason is Reason.REFUSED

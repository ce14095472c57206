from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import zmq
from group import LIMIT, SECRET
from ports import tcp_port
from probing import LONG, OURS, THEIRS, nothing, reason_of, router, target

import zcoll
from zcoll import probe
from zcoll.launchers.settings import Target
from zcoll.probe import Reason, Unreachable, locate
from zcoll.transport import ipc
from zcoll.transport.address import Place
from zcoll.transport.greeting import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from zcoll.security import Secret
    from zcoll.wire import Message


# --- what else may listen there -------------------------------------------


@contextlib.contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A TCP server that answers everybody so, and keeps the connections."""
    kept: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            kept.append(connection)
            with contextlib.suppress(OSError):
                answer(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(LIMIT)
            for connection in kept:
                connection.close()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda _: None, Reason.NO_ANSWER),
        (lambda connection: connection.close(), Reason.NO_ANSWER),
        (lambda connection: connection.sendall(bytes(99)), Reason.NOT_ZCOLL),
        (
            lambda connection: connection.sendall(b"HTTP/1.0 400 no\r\n\r\n"),
            Reason.NOT_ZCOLL,
        ),
    ],
    ids=["silent", "closes", "junk", "http"],
)
@pytest.mark.parametrize("secret", [None, OURS], ids=["no secret", "secret"])
def test_a_listener_that_is_not_zcoll(
    answer: Callable[[socket.socket], None], reason: Reason, secret: Secret | None
) -> None:
    with serving(answer) as port:
        found, text = reason_of(target(port, secret))
    assert found is reason
    assert f"127.0.0.1:{port}" in text
    assert "not zcoll" in text


@pytest.mark.parametrize("secret", [None, OURS], ids=["no secret", "secret"])
def test_a_zeromq_socket_without_a_secret_is_not_zcoll(secret: Secret | None) -> None:
    with zmq.Context() as context, context.socket(zmq.REP) as foreign:
        port = foreign.bind_to_random_port("tcp://127.0.0.1")
        found, text = reason_of(target(port, secret), LONG)
    assert (found, "a ZeroMQ socket" in text) == (Reason.NOT_ZCOLL, True)


@pytest.mark.parametrize("secret", [None, OURS], ids=["no secret", "secret"])
def test_nobody_listens(secret: Secret | None) -> None:
    port = tcp_port()
    started = time.monotonic()
    found, text = reason_of(target(port, secret), LONG)
    assert time.monotonic() - started < LONG / 2, "this is known at once"
    assert found is Reason.REFUSED
    assert str(port) in text


# --- secrets --------------------------------------------------------------


def test_another_secret_is_told_at_once() -> None:
    started = time.monotonic()
    with router(THEIRS, nothing) as port:
        found, text = reason_of(target(port, OURS), LONG)
    assert time.monotonic() - started < LONG / 2
    assert found is Reason.WRONG_SECRET
    assert "another secret" in text
    assert SECRET not in text


def test_rank_0_has_a_secret_and_this_side_none() -> None:
    with router(OURS, nothing) as port:
        found, text = reason_of(target(port), LONG)
    assert found is Reason.ONE_SIDED_SECRET
    assert "set ZCOLL_SECRET" in text


def test_this_side_has_a_secret_and_rank_0_none() -> None:
    with router(None, nothing) as port:
        found, text = reason_of(target(port, OURS), LONG)
    assert found is Reason.ONE_SIDED_SECRET
    assert "unset it" in text


@pytest.mark.parametrize("answer", [None, nothing], ids=["admits nobody", "is mute"])
@pytest.mark.parametrize("secret", [None, OURS], ids=["ipc", "tcp"])
def test_a_busy_rank_0_is_not_one_with_another_secret(
    secret: Secret | None, answer: Callable[[Message], list[bytes]] | None
) -> None:
    with router(secret, answer) as port:
        found, text = reason_of(target(port, secret))
    assert found is Reason.NO_ANSWER
    assert "does not answer" in text


# --- places ---------------------------------------------------------------


def test_a_name_that_does_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    for secret in (None, OURS):
        with pytest.raises(Unreachable, match=r"'node\.test' does not resolve") as one:
            locate(Target("node.test", 5000, secret), LIMIT)
        assert one.value.reason is Reason.UNRESOLVED


def test_a_resolver_that_does_not_answer_has_the_limit_of_a_probe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = threading.Event()

    def hang(*_: object, **__: object) -> None:
        done.wait(LIMIT)
        raise socket.gaierror(socket.EAI_AGAIN, "later")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    with pytest.raises(Unreachable, match=r"within 0\.1 s") as caught:
        locate(Target("node.test", 5000, OURS), 0.1)
    done.set()
    assert caught.value.reason is Reason.UNRESOLVED


def test_a_directory_that_cannot_be_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(tempfile.mkdtemp(prefix="zcoll-test-"))
    monkeypatch.setattr(ipc, "ROOT", root)
    ipc.path_of(5000).parent.mkdir(mode=0o755)
    try:
        with pytest.raises(Unreachable, match="cannot be trusted") as caught:
            locate(target(5000), LIMIT)
    finally:
        shutil.rmtree(root)
    assert caught.value.reason is Reason.UNTRUSTED


@pytest.mark.parametrize(
    ("finding", "reason", "words"),
    [
        (Finding.CURVE, Reason.ONE_SIDED_SECRET, "set ZCOLL_SECRET"),
        (Finding.NULL, Reason.NOT_ZCOLL, "not zcoll"),
        (Finding.NOT_ZEROMQ, Reason.NOT_ZCOLL, "not zcoll"),
        (Finding.REFUSED, Reason.REFUSED, "127.0.0.1:5000"),
        (Finding.NO_ANSWER, Reason.NO_ANSWER, "the host is down"),
    ],
)
def test_another_host_is_not_asked_without_a_secret_but_looked_at(
    monkeypatch: pytest.MonkeyPatch, finding: Finding, reason: Reason, words: str
) -> None:
    seen = []

    def look(place: Place, _: float) -> Finding:
        seen.append(place)
        return finding

    monkeypatch.setattr(probe, "look", look)
    with pytest.raises(Unreachable) as caught:
        locate(Target("192.0.2.1", 5000, None), LIMIT)
    assert seen == [Place("tcp", "192.0.2.1", 5000)]
    assert (caught.value.reason, words in caught.value.text) == (reason, True)


def test_an_address_that_is_none_is_wrong_usage() -> None:
    with pytest.raises(zcoll.ConfigurationError):
        locate(Target("a/b", 5000, None), LIMIT)

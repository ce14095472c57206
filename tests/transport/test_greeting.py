from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq
from zmq.utils.monitor import parse_monitor_message

from zcoll.transport import ipc
from zcoll.transport.address import Place
from zcoll.transport.greeting import Finding, look
from zcoll.transport.ipc import Claim, path_of, socket_path

PORT = 50000
SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
NULL = SIGNATURE + b"\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="zcoll-test-"))
    monkeypatch.setattr(ipc, "ROOT", path)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def server() -> Iterator[zmq.Socket[bytes]]:
    context = zmq.Context()
    server = context.socket(zmq.ROUTER)
    yield server
    context.destroy(linger=0)


@contextlib.contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[Place]:
    """A TCP server that answers its first client so."""
    done = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            with contextlib.suppress(OSError):  # the client has gone
                answer(connection)
            done.wait(10)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield Place("tcp", "127.0.0.1", listener.getsockname()[1])
        finally:
            done.set()
            thread.join(10)
            assert not thread.is_alive()


def tcp_place(server: zmq.Socket[bytes]) -> Place:
    port = server.bind_to_random_port("tcp://127.0.0.1")
    return Place("tcp", "127.0.0.1", port)


def ipc_place(server: zmq.Socket[bytes]) -> Place:
    place = Place("ipc", "", PORT)
    socket_path(PORT, create=True)
    server.bind(place.endpoint)
    return place


@pytest.mark.parametrize("bind", [tcp_place, ipc_place])
@pytest.mark.parametrize("mechanism", ["NULL", "CURVE", "PLAIN"])
def test_zeromq_sockets(
    bind: Callable[[zmq.Socket[bytes]], Place],
    mechanism: str,
    server: zmq.Socket[bytes],
) -> None:
    expected = Finding.NULL
    if mechanism == "CURVE":
        server.curve_secretkey = zmq.curve_keypair()[1]
        server.curve_server = True
        expected = Finding.CURVE
    elif mechanism == "PLAIN":
        server.plain_server = True
        expected = Finding.NOT_ZEROMQ
    assert look(bind(server), 5) is expected


@pytest.mark.parametrize("curve", [False, True])
def test_a_look_is_no_failed_handshake(curve: bool, server: zmq.Socket[bytes]) -> None:
    """Rank 0 must not say "wrong secret" of somebody who only looked."""
    if curve:
        server.curve_secretkey = zmq.curve_keypair()[1]
        server.curve_server = True
    events: set[int] = set()
    with server.get_monitor_socket() as monitor:
        look(tcp_place(server), 5)
        while not events & {
            zmq.EVENT_DISCONNECTED,
            zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
        }:
            assert monitor.poll(5000)
            events.add(parse_monitor_message(monitor.recv_multipart())["event"])
        server.disable_monitor()
    assert zmq.EVENT_ACCEPTED in events
    assert zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL not in events
    assert zmq.EVENT_HANDSHAKE_FAILED_AUTH not in events


def test_nobody_listens() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        place = Place("tcp", "127.0.0.1", bound.getsockname()[1])
        assert look(place, 5) is Finding.REFUSED


def test_there_is_no_socket() -> None:
    place = Place("ipc", "", PORT)
    assert look(place, 5) is Finding.ABSENT
    claim = Claim(PORT)
    assert look(place, 5) is Finding.ABSENT
    claim.release()


def test_a_socket_of_a_dead_owner() -> None:
    claim = Claim(PORT)
    claim.listen().close()
    assert look(Place("ipc", "", PORT), 5) is Finding.REFUSED
    claim.release()


def test_a_socket_in_a_directory_that_anybody_can_write(
    server: zmq.Socket[bytes],
) -> None:
    place = ipc_place(server)
    assert look(place, 5) is Finding.NULL
    path_of(PORT).parent.chmod(0o777)
    assert look(place, 5) is Finding.ABSENT


@pytest.mark.parametrize("kind", ["tcp", "ipc"])
def test_a_listener_that_never_accepts(kind: str) -> None:
    claim = Claim(PORT)
    with claim.listen(), socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        places = {
            "tcp": Place("tcp", "127.0.0.1", port),
            "ipc": Place("ipc", "", PORT),
        }
        began = time.monotonic()
        assert look(places[kind], 0.2) is Finding.NO_ANSWER
        assert 0.1 < time.monotonic() - began < 5
        assert look(places[kind], 0) is Finding.NO_ANSWER
    claim.release()


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"", Finding.NO_ANSWER),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", Finding.NOT_ZEROMQ),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(64), Finding.NOT_ZEROMQ),
        (b"\xff" + bytes(63), Finding.NOT_ZEROMQ),
        (SIGNATURE + b"\x01\x05", Finding.NOT_ZEROMQ),
        (SIGNATURE, Finding.NO_ANSWER),
        (NULL[:63], Finding.NO_ANSWER),
        (NULL, Finding.NULL),
        (NULL + b"\x04\x19\x05READY", Finding.NULL),
        (NULL.replace(b"NULL", b"XULL"), Finding.NOT_ZEROMQ),
        (NULL.replace(b"NULL\0", b"NULLX"), Finding.NOT_ZEROMQ),
    ],
)
@pytest.mark.parametrize("then", ["hang", "close"])
def test_answers(sent: bytes, expected: Finding, then: str) -> None:
    def answer(connection: socket.socket) -> None:
        connection.sendall(sent)
        if then == "close":
            connection.shutdown(socket.SHUT_WR)

    patient = expected is Finding.NO_ANSWER and then == "hang"
    with serving(answer) as place:
        assert look(place, 0.2 if patient else 5) is expected


def test_a_greeting_byte_by_byte() -> None:
    def answer(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in NULL:
            connection.sendall(bytes([byte]))
            time.sleep(0.001)

    with serving(answer) as place:
        assert look(place, 10) is Finding.NULL


def test_a_trickle_does_not_outlast_the_timeout() -> None:
    def answer(connection: socket.socket) -> None:
        for byte in NULL:
            connection.sendall(bytes([byte]))
            time.sleep(0.05)

    began = time.monotonic()
    with serving(answer) as place:
        assert look(place, 0.3) is Finding.NO_ANSWER
        assert time.monotonic() - began < 2


def test_a_peer_that_accepts_and_resets() -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(1)  # the rest stays unread, so closing resets
        connection.close()

    with serving(answer) as place:
        assert look(place, 5) is Finding.NO_ANSWER


def test_a_connection_to_oneself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may give the port that is called to the caller."""
    own = socket.socket()
    own.bind(("127.0.0.1", 0))
    own.connect(own.getsockname())
    monkeypatch.setattr(socket, "create_connection", lambda *_: own)
    place = Place("tcp", "127.0.0.1", own.getsockname()[1])
    assert look(place, 5) is Finding.REFUSED


def test_a_network_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> socket.socket:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket, "create_connection", unreachable)
    assert look(Place("tcp", "192.0.2.1", 5), 5) is Finding.NO_ANSWER

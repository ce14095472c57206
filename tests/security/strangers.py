"""Peers that do not know the secret, or only a part of what follows from it."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import zmq
from group import LIMIT
from zmq.utils.monitor import recv_monitor_message

from zcoll.security import Secret

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from zcoll.payload import Buffer

OTHER = "another secret of the tests, long enough"
STRANGERS = ("NULL", "PLAIN", "other secret", "leaked server key")
_FAILURES = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)


def _dress(socket: zmq.Socket[bytes], stranger: str, secret: str) -> None:
    if stranger == "PLAIN":
        socket.plain_username, socket.plain_password = b"replica", b"zcoll"
    elif stranger != "NULL":
        known = OTHER if stranger == "other secret" else secret
        socket.curve_serverkey = Secret.of(known).keys().server_public
        if stranger == "other secret":
            keys = Secret.of(OTHER).keys()
            pair = keys.client_public, keys.client_secret
        else:
            pair = zmq.curve_keypair()
        socket.curve_publickey, socket.curve_secretkey = pair


def knock(
    stranger: str, port: int, secret: str, said: Sequence[Sequence[Buffer]]
) -> float:
    """Try to get in and to be heard, until refused; give the seconds that it took.

    Args:
        stranger: One of STRANGERS.
        port: Rank 0's, on this host.
        secret: The group's; most strangers do not use it.
        said: The messages that are queued for when the handshake succeeds.
    """
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        socket = context.socket(zmq.DEALER)
        _dress(socket, stranger, secret)
        monitor = socket.get_monitor_socket(_FAILURES | zmq.EVENT_HANDSHAKE_SUCCEEDED)
        start = time.monotonic()
        socket.connect(f"tcp://127.0.0.1:{port}")
        with contextlib.suppress(zmq.Again):  # it may have been refused already
            for frames in said:
                socket.send_multipart([bytes(frame) for frame in frames], zmq.NOBLOCK)
        assert monitor.poll(int(LIMIT * 1000)), f"{stranger}: nothing was answered"
        taken = time.monotonic() - start
        event = recv_monitor_message(monitor)["event"]
        assert event & _FAILURES, f"{stranger}: was let in"
        assert not socket.poll(100), f"{stranger}: was told something"
        socket.disable_monitor()
        return taken
    finally:
        context.destroy(linger=0)


@contextlib.contextmanager
def false_rank_0(
    port: int, stranger: str, said: Sequence[Sequence[Buffer]]
) -> Iterator[None]:
    """Stand where rank 0 should, and say these things to everybody who connects."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        # A DEALER speaks without being asked.
        socket = context.socket(zmq.DEALER)
        if stranger == "other secret":
            keys = Secret.of(OTHER).keys()
            socket.curve_server = True
            socket.curve_secretkey = keys.server_secret
        socket.bind(f"tcp://127.0.0.1:{port}")
        for frames in said:
            for _ in range(5):
                socket.send_multipart([bytes(f) for f in frames], zmq.NOBLOCK)
        yield
    except zmq.Again:
        yield
    finally:
        context.destroy(linger=0)

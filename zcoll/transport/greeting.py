"""Who listens at a place? A look at the first bytes that a server sends.

A ZMTP 3 greeting is 64 bytes: a signature (``FF``, eight bytes, ``7F``), the
version (major, minor), the name of the security mechanism (20 bytes, padded with
zeros), whether the sender is a server, and filler. A peer that has been told the
signature and the major version sends its whole greeting. Nothing more is sent here:
the look ends before the handshake begins, so the server does not take it for a
replica that has the wrong secret.
"""

from __future__ import annotations

import enum
import socket
import time

from zcoll.errors import SecurityError
from zcoll.transport import ipc
from zcoll.transport.address import Place

_SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
_LENGTH = 64
_MECHANISM = slice(12, 32)


class Finding(enum.Enum):
    """What was found at a place."""

    ABSENT = "there is no socket"
    REFUSED = "nobody listens"
    NO_ANSWER = "no answer"
    NOT_ZEROMQ = "something answers that is not zcoll"
    NULL = "a ZeroMQ socket without a secret answers"
    CURVE = "a ZeroMQ socket with a secret answers"


def look(place: Place, timeout: float) -> Finding:
    """Connect, read the greeting, and hang up.

    Args:
        place: Where to look.
        timeout: The limit for all of it, in seconds.

    Returns:
        What was found. ``NO_ANSWER`` also stands for a host that is not reached and
        for a peer that accepts and closes (a proxy whose server is not up), and
        ``ABSENT`` also for a socket file in a directory that cannot be trusted.
    """
    deadline = time.monotonic() + timeout
    try:
        with _connect(place, timeout) as connection:
            if connection.getsockname() == connection.getpeername() != "":
                return Finding.REFUSED  # the system gave us the port that we called
            connection.sendall(_SIGNATURE + b"\x03")
            return _classify(_read(connection, deadline))
    except (FileNotFoundError, NotADirectoryError, SecurityError):
        return Finding.ABSENT
    except ConnectionRefusedError:
        return Finding.REFUSED
    except OSError:  # unreachable, timed out
        return Finding.NO_ANSWER


def _connect(place: Place, timeout: float) -> socket.socket:
    if place.kind == "tcp":
        return socket.create_connection((place.host, place.port), timeout)
    path = ipc.socket_path(place.port, create=False)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout)
        connection.connect(str(path))
    except BaseException:
        connection.close()
        raise
    return connection


def _read(connection: socket.socket, deadline: float) -> bytes:
    """Read a greeting, or as much as comes in time and looks like one."""
    greeting = b""
    try:
        while len(greeting) < _LENGTH and _may_be_greeting(greeting):
            connection.settimeout(max(deadline - time.monotonic(), 0.001))
            data = connection.recv(_LENGTH - len(greeting))
            if not data:
                break
            greeting += data
    except (TimeoutError, ConnectionError):
        pass  # what has come tells
    return greeting


def _may_be_greeting(start: bytes) -> bool:
    """Tell whether bytes can begin a greeting of ZMTP 3 or newer."""
    return (
        start[:1] in (b"", b"\xff")
        and start[9:10] in (b"", b"\x7f")
        and (len(start) <= 10 or start[10] >= 3)
    )


def _classify(greeting: bytes) -> Finding:
    if not _may_be_greeting(greeting):
        return Finding.NOT_ZEROMQ
    if len(greeting) < _LENGTH:
        return Finding.NO_ANSWER
    mechanism = greeting[_MECHANISM].rstrip(b"\0")
    known = {b"NULL": Finding.NULL, b"CURVE": Finding.CURVE}
    return known.get(mechanism, Finding.NOT_ZEROMQ)

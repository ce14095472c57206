"""What somebody can do to a port without knowing any secret."""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import struct
import time
from typing import TYPE_CHECKING

from group import LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HOME = "127.0.0.1"
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing leaves nothing behind


def greeting(mechanism: bytes = b"CURVE") -> bytes:
    """The first 64 bytes of ZMTP 3.1."""
    head = b"\xff" + bytes(8) + b"\x7f\x03\x01"
    return head + mechanism.ljust(20, b"\0") + bytes(32)


def push_frame(port: int, claim: int, limit: int, *, flags: int = 0x06) -> int:
    """Claim a frame of some size, and send it until cut off; give what was taken.

    Args:
        port: Whose.
        claim: The size that the frame is said to have.
        limit: Bytes after which it is enough.
        flags: Of the frame; 6 is a command with a long size, as handshakes have.
    """
    sent, block = 0, bytes(1 << 20)
    with socket.create_connection((HOME, port), LIMIT) as one:
        one.settimeout(1.0)
        with contextlib.suppress(OSError):
            one.sendall(greeting())
            one.recv(64)
            one.sendall(struct.pack("!BQ", flags, claim))
            while sent < limit:
                sent += one.send(block)
    return sent


@contextlib.contextmanager
def unfinished_frame(port: int, claim: int) -> Iterator[None]:
    """Hold a connection that has sent a frame of that size, but for its last byte."""
    with socket.create_connection((HOME, port), LIMIT) as one:
        one.sendall(greeting() + struct.pack("!BQ", 6, claim))
        one.sendall(bytes(claim - 1))
        yield


@contextlib.contextmanager
def idle_connections(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Hold connections that say nothing. The kernel's queue takes what does not fit."""
    held: list[socket.socket] = []
    try:
        for _ in range(count):
            one = socket.socket()
            held.append(one)
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                one.connect((HOME, port))
        yield held
    finally:
        for one in held:
            one.close()


def is_cut(one: socket.socket) -> bool:
    """Whether the other end has closed a connection that does not block."""
    try:
        while one.recv(4096):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def junk(choose: random.Random) -> bytes:
    """What is no beginning of a handshake, or one that goes wrong."""
    noise = choose.randbytes(choose.randrange(1, 400))
    size = choose.choice([0, 1, 255, 2**16, 2**31, 2**40, 2**63, 2**64 - 1])
    kinds = [
        noise,
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        greeting()[: choose.randrange(1, 64)],
        greeting(choose.choice([b"NULL", b"PLAIN", b"GSSAPI", b"", b"CURVE\xff"])),
        greeting() + noise,
        greeting() + struct.pack("!BQ", choose.randrange(256), size) + noise,
        greeting() + b"\x04\xc8\x05HELLO\x01\x00" + choose.randbytes(192),
        greeting() + b"\x04\xc8\x05HELLO\x01\x00" + bytes(192),
        greeting() + b"\x04" + bytes([choose.randrange(256)]) + b"\x08INITIATE" + noise,
    ]
    return choose.choice(kinds)


def throw(port: int, pieces: Sequence[bytes], patience: float = 0.02) -> None:
    """Send each piece on a connection of its own, all at the same time.

    Args:
        port: Where to.
        pieces: What is sent.
        patience: Seconds to wait for the other end to close them.
    """
    selector = selectors.DefaultSelector()
    try:
        for piece in pieces:
            one = socket.socket()
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                one.connect((HOME, port))
            selector.register(one, selectors.EVENT_WRITE, piece)
        deadline = time.monotonic() + LIMIT
        unsent, end = len(pieces), None
        while selector.get_map() and time.monotonic() < (end or deadline):
            for key, _ in selector.select(0.01):
                one = key.fileobj  # type: ignore[assignment]
                if key.data is not None:
                    with contextlib.suppress(OSError):
                        one.send(key.data)
                    unsent -= 1
                    selector.modify(one, selectors.EVENT_READ, None)
                elif is_cut(one):
                    selector.unregister(one)
                    _drop(one)
            if not unsent and end is None:
                end = time.monotonic() + patience
        assert not unsent, "the port takes no connections any more"
    finally:
        for key in list(selector.get_map().values()):
            _drop(key.fileobj)  # type: ignore[arg-type]
        selector.close()


def _drop(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    one.close()


def flood(port: int, count: int, seed: int = 0, batch: int = 100) -> None:
    """Throw that much junk at a port."""
    choose = random.Random(seed)
    for start in range(0, count, batch):
        throw(port, [junk(choose) for _ in range(min(batch, count - start))])

"""A stranger who does not know the secret, and keeps a port busy: no part of zcoll.

    flood.py HOST PORT

It makes connections as fast as it can, says something else on each (nothing, noise,
a ZMTP greeting without a secret, half of one), and keeps many of them open.
"""

from __future__ import annotations

import random
import socket
import sys
from collections import deque

OPEN = 100  # connections at a time
REPORT = 500  # connections between two lines of output
GREETING = (
    b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
)


def words(number: int) -> bytes:
    """What the connection of this number says."""
    noise = random.Random(number).randbytes(2000)
    return (b"", noise, GREETING, GREETING[:30], GREETING + noise)[number % 5]


def main(host: str, port: int) -> None:
    """Make connections until the process is ended."""
    kept: deque[socket.socket] = deque()
    number = 0
    while True:
        if len(kept) >= OPEN:
            kept.popleft().close()
        try:
            connection = socket.create_connection((host, port), timeout=5)
            kept.append(connection)
            connection.sendall(words(number))
        except OSError:
            continue  # it was hung up on: the next one
        number += 1
        if number % REPORT == 0:
            print(f"{number} connections", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

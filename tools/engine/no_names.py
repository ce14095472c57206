"""Answers every DNS question with NXDOMAIN, at once.

Docker answers for the names of containers itself, and passes all others on to a
server of the host's network. A private engine has no network: without an answer each
name that does not exist (yet) would cost a resolver's time-out of some seconds.
"""

from __future__ import annotations

import socket
import sys

PORT = 53
HEADER = 12  # bytes of a question's header
TYPE_AND_CLASS = 4  # bytes after the name that is asked for
NXDOMAIN = b"\x81\x83"  # a response, recursion available, no such name


def answer(query: bytes) -> bytes | None:
    """Say that there is no such name; None to what is no question."""
    end = HEADER
    while end < len(query) and query[end]:
        end += query[end] + 1
    end += 1 + TYPE_AND_CLASS
    if end > len(query):
        return None
    one_question = b"\x00\x01" + bytes(6)
    return query[:2] + NXDOMAIN + one_question + query[HEADER:end]


def serve(address: str) -> None:
    """Answer until the process is ended."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, PORT))
        while True:
            query, asker = server.recvfrom(1500)
            reply = answer(query)
            if reply is not None:
                server.sendto(reply, asker)


if __name__ == "__main__":
    serve(sys.argv[1])

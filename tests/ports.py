"""Port numbers that no other test uses at the same time."""

from __future__ import annotations

import contextlib
import random
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Below the range from which the kernel takes the ports of outgoing connections.
LOW, HIGH = 15_000, 32_000


def _bind_some_port() -> socket.socket:
    for _ in range(100):
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            holder.bind(("127.0.0.1", random.randrange(LOW, HIGH)))
        except OSError:
            holder.close()
        else:
            return holder
    raise AssertionError("100 random ports are all in use")


@contextlib.contextmanager
def ipc_port() -> Iterator[int]:
    """Hold a port number for a group that meets over ipc.

    Such a group opens no TCP port, so a bound socket keeps the number ours.
    """
    with contextlib.closing(_bind_some_port()) as holder:
        yield holder.getsockname()[1]


def tcp_port() -> int:
    """Pick a port on which nobody listens now."""
    with contextlib.closing(_bind_some_port()) as holder:
        port: int = holder.getsockname()[1]
        return port

"""What a forked child must do with its parent's connections.

They are open in the child too, so a parent that is killed would look alive for as
long as the child runs. ZeroMQ does not tell which descriptors are its own; but a
connection of the group is known by its address.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zcoll.transport.address import Place

_OPEN = "/dev/fd"  # Linux and macOS: one entry for each open descriptor


def let_go(place: Place, *, listens: bool) -> None:
    """Close the copies of a group's connections. For a forked child only.

    Args:
        place: Where rank 0 listens.
        listens: Whether the parent is rank 0.
    """
    for entry in os.listdir(_OPEN):
        with contextlib.suppress(OSError):  # no socket, or not open any more
            if _belongs(int(entry), place, listens=listens):
                # Closing it would let the number be used again while ZeroMQ's
                # memory in this process still refers to it.
                null = os.open(os.devnull, os.O_RDWR)
                os.dup2(null, int(entry), inheritable=False)
                os.close(null)


def _belongs(descriptor: int, place: Place, *, listens: bool) -> bool:
    import socket  # noqa: PLC0415 - it is there, as the group has sockets

    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return False
    with socket.socket(fileno=os.dup(descriptor)) as copy:
        name: object = copy.getsockname() if listens else copy.getpeername()
    if place.kind == "ipc":
        return name == place.endpoint.removeprefix("ipc://")
    if not isinstance(name, tuple) or name[1] != place.port:
        return False
    # A listener at a wildcard has connections at each of the host's addresses.
    host = str(name[0]).removeprefix("::ffff:")
    return listens or host == place.host.partition("%")[0]

"""Looking a master address up without waiting for it.

The system's own look-up may take half a minute where no name server answers, and
cannot be given up. So it has a thread of its own.
"""

from __future__ import annotations

import concurrent.futures
import threading

from zcoll.transport.address import Place, connect_place


def look_up(
    master_addr: str, port: int, *, secret: bool
) -> concurrent.futures.Future[Place]:
    """Find out where a replica finds rank 0 now.

    Args:
        master_addr: The master address.
        port: The master port.
        secret: Whether the group has a secret.

    Returns:
        What :func:`~zcoll.transport.address.connect_place` returns or raises.
    """
    found: concurrent.futures.Future[Place] = concurrent.futures.Future()

    def work() -> None:
        try:
            found.set_result(connect_place(master_addr, port, secret=secret))
        except Exception as error:
            found.set_exception(error)

    threading.Thread(target=work, name="zcoll-lookup", daemon=True).start()
    return found

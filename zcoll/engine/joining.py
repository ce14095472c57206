"""From settings to an engine whose group is complete."""

from __future__ import annotations

import os
import random
import socket
import sys
import time
from typing import TYPE_CHECKING

from zcoll.protocol.events import Identity
from zcoll.version import __version__

if TYPE_CHECKING:
    from zcoll.engine.alone import Alone
    from zcoll.engine.hub import Hub
    from zcoll.engine.spoke import Spoke
    from zcoll.launchers.settings import Settings


def join(settings: Settings) -> Hub | Spoke | Alone:
    """Bring this replica into its group, and wait until the group is complete.

    Raises:
        ConfigurationError: The address cannot be used, or the port is taken.
        SecurityError: The directory of private sockets cannot be trusted.
        RendezvousError: The group did not come together.
    """
    identity = Identity(
        rank=settings.rank,
        num_replicas=settings.num_replicas,
        host=socket.gethostname(),
        pid=os.getpid(),
        incarnation=random.SystemRandom().getrandbits(63),
        package=__version__,
        python=sys.version.split()[0],
    )
    if settings.num_replicas == 1:
        from zcoll.engine.alone import Alone  # noqa: PLC0415 - it, or what follows

        return Alone(identity, settings.loads)
    from zcoll.engine.opening import open_engine  # noqa: PLC0415
    from zcoll.engine.waiting import wait_until_complete  # noqa: PLC0415

    deadline = time.monotonic() + settings.timeout
    engine, place = open_engine(settings, identity, deadline)
    try:
        engine.start()
        wait_until_complete(engine, place, settings, deadline)
    except BaseException:
        engine.leave()
        raise
    return engine

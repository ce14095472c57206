"""A replica's handle on a group: every collective is a method of it.

``calling`` is how any call is made, ``blocking`` and ``asynchronous`` are the
collectives, ``communicator`` adds groups and their ends.
"""

from zcoll.communicator.communicator import Communicator

__all__ = ["Communicator"]

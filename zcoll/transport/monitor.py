"""What ZeroMQ tells of a socket's connections."""

from __future__ import annotations

import contextlib
import enum
import struct
from typing import TYPE_CHECKING

import zmq

if TYPE_CHECKING:
    from zcoll.transport.clogs import Clogs

_OPENED = zmq.EVENT_CONNECTED | zmq.EVENT_ACCEPTED

# Not EVENT_HANDSHAKE_FAILED_PROTOCOL: libzmq 4.3.5 also reports a corrupted message
# by it, and by doing so overwrites the errno by which it would end the connection.
# That then stands deaf, and the next heartbeat after its end aborts the process.
_WATCHED = (
    _OPENED
    | zmq.EVENT_CONNECT_RETRIED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_DISCONNECTED
)


# The event and its value, by the manual; what pyzmq has for it imports asyncio.
_TOLD = struct.Struct("=Hi")


class Event(enum.Enum):
    """What happened to a connection."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    REFUSED = "refused"  # the handshake failed
    RETRYING = "retrying"  # libzmq will connect again


class Monitor:
    """Reads what libzmq's own thread reports. It must be drained.

    Args:
        context: The socket's context.
        watched: The socket.
        clogs: Is told of connections that are made and end, if it is there.

    Attributes:
        socket: Becomes readable when there is something to tell.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        watched: zmq.Socket[bytes],
        clogs: Clogs | None,
    ) -> None:
        self._watched = watched
        self._clogs = clogs
        self._shaking = 0  # connections whose handshake has not ended
        endpoint = f"inproc://monitor-{id(self)}"
        watched.monitor(endpoint, _WATCHED)
        self.socket = context.socket(zmq.PAIR)
        # An undrained monitor would freeze libzmq's own thread at its high-water
        # mark, and with it all connections.
        self.socket.rcvhwm = 0
        self.socket.linger = 0
        self.socket.connect(endpoint)

    def events(self) -> list[Event]:
        """Take what has happened. It does not tell to which connection."""
        events: list[Event] = []
        while self.socket.poll(0):
            told, _ = self.socket.recv_multipart(zmq.NOBLOCK)
            code, value = _TOLD.unpack(told)
            self._note_descriptor(code, value)
            if code & _OPENED:
                self._shaking += 1
            elif code == zmq.EVENT_CONNECT_RETRIED:
                events.append(Event.RETRYING)
            elif code == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._shaking = max(0, self._shaking - 1)
                events.append(Event.CONNECTED)
            else:
                if self._shaking:  # libzmq does not tell every failed handshake
                    self._shaking -= 1
                    events.append(Event.REFUSED)
                if code == zmq.EVENT_DISCONNECTED:
                    events.append(Event.DISCONNECTED)
        return events

    def _note_descriptor(self, code: int, fd: int) -> None:
        if self._clogs is not None and code & _OPENED:
            self._clogs.opened(fd)
        elif self._clogs is not None and code == zmq.EVENT_DISCONNECTED:
            self._clogs.closed(fd)

    def close(self) -> None:
        """End it, before the socket is closed."""
        with contextlib.suppress(zmq.ZMQError):
            # Before its PAIR is closed, or libzmq's thread would wait for ever.
            self._watched.disable_monitor()

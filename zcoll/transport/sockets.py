"""The ZeroMQ sockets of a group, and their options.

Rank 0 has a :class:`Router`, every other replica a :class:`Dealer`. Both belong to
one thread at a time and have a context of their own. Nothing here blocks.
"""

from __future__ import annotations

import contextlib
import functools
import os
from typing import TYPE_CHECKING, NamedTuple

import zmq
import zmq.backend
from zmq.backend import zmq_poll

from zcoll import security
from zcoll.errors import ConfigurationError
from zcoll.payload import Buffer
from zcoll.transport import ipc
from zcoll.transport.clogs import Clogs
from zcoll.transport.monitor import Monitor
from zcoll.wire import MAX_FRAME

if TYPE_CHECKING:
    import socket

    from zcoll.security import Keys
    from zcoll.transport.address import Place
    from zcoll.transport.monitor import Event

_LEAST_LIBZMQ = (4, 3, 3)  # older ones have CVE-2019-6250, 2019-13132, 2020-15166
_ZERO_COPY = 64 * 1024  # bytes from which a frame is sent without a copy
_NOW = int(zmq.NOBLOCK)
_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)
_ZAP_ENDPOINT = "inproc://zeromq.zap.01"
_MOST_FRAMES = 3  # of a message that are looked at: the parser refuses more than 2
_PROMPT = 0.93  # of the promised times; the rest is for whoever has to act on it
_CLOSING_LINGER = 200  # milliseconds for the last acknowledgements to leave


class Heartbeat(NamedTuple):
    """ZMTP heartbeats, answered by libzmq's own thread, also while Python is busy.

    Attributes:
        interval: Seconds between two.
        timeout: Seconds without an answer after which a peer is gone.
    """

    interval: float = 2.0
    timeout: float = 10.0

    @property
    def limit(self) -> float:
        """Seconds in which silence is noticed."""
        return _PROMPT * (self.interval + self.timeout)


class _Socket:
    """A socket with a context and a monitor of its own."""

    def __init__(self, kind: int, place: Place, heartbeat: Heartbeat) -> None:
        if zmq.zmq_version_info() < _LEAST_LIBZMQ:
            raise ConfigurationError(
                f"pyzmq uses libzmq {zmq.zmq_version()}, which strangers can crash: "
                "install a pyzmq wheel of version 26 or newer"
            )
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self._context.socket(kind)
        # A socket looks attributes up in its options, too: these are found faster.
        self._take = self.socket.recv
        self._put = functools.partial(zmq.backend.Socket.send, self.socket)
        self._itself = [(self.socket, int(zmq.POLLIN))]  # to poll
        self._set_common_options(heartbeat)
        clogs = None
        if place.kind == "ipc":
            clogs = Clogs(place.endpoint.removeprefix("ipc://"), heartbeat.limit)
        self._clogs = clogs
        self._monitor = Monitor(self._context, self.socket, clogs)
        self.monitor = self._monitor.socket

    def _set_common_options(self, heartbeat: Heartbeat) -> None:
        options = {
            zmq.LINGER: 0,  # closing never waits for a dead peer
            zmq.SNDHWM: 0,  # nothing is dropped or blocked in ZeroMQ: zcoll's own
            zmq.RCVHWM: 0,  # windows and grants bound what is on the way
            # A stranger cannot make us hold gigabytes: it is checked before the
            # handshake too, and before anything is allocated.
            zmq.MAXMSGSIZE: MAX_FRAME,
            # Half-open connections, and those that dribble, do not hold descriptors.
            zmq.HANDSHAKE_IVL: 10_000,
            # Firewalls and address translators do not forget an idle connection, and
            # the kernel notices one that is gone while libzmq has not begun to ask.
            zmq.TCP_KEEPALIVE: 1,
            zmq.TCP_KEEPALIVE_IDLE: 30,
            zmq.TCP_KEEPALIVE_INTVL: 5,
            zmq.TCP_KEEPALIVE_CNT: 3,
            # A peer that is stopped or cut off is noticed; see Heartbeat.
            zmq.HEARTBEAT_IVL: int(heartbeat.interval * 1000),
            # A little less, so that whatever follows from it is in time.
            zmq.HEARTBEAT_TIMEOUT: int(heartbeat.timeout * 980),
            zmq.HEARTBEAT_TTL: int(heartbeat.limit * 1000),
            # See Clogs. The kernel looks only now and then, and so a little late.
            zmq.TCP_MAXRT: int((heartbeat.timeout + heartbeat.interval / 2) * 1000),
        }
        for option, value in options.items():
            self.socket.setsockopt(option, value)

    def _receive(self) -> list[Buffer] | None:
        """Take the frames that come next; data keeps ZeroMQ's own memory."""
        # Frames know whether there are more: asking the socket takes longer.
        try:
            frame = self._take(_NOW, copy=False)
        except zmq.Again:
            return None
        frames: list[Buffer] = [frame.bytes]
        while frame.more:
            frame = self._take(_NOW, copy=False)
            if len(frames) < _MOST_FRAMES:  # else no message of zcoll: not kept
                frames.append(frame.buffer)
        return frames

    def _send(self, frames: list[Buffer]) -> None:
        """Send the frames of a message, large ones without a copy."""
        *first, last = frames
        for frame in first:
            self._put(frame, _MORE, len(frame) < _ZERO_COPY)
        self._put(last, _NOW, len(last) < _ZERO_COPY)

    def holds_more(self) -> bool:
        """Whether there is a message to receive; to find none there takes longer."""
        return bool(zmq_poll(self._itself, 0))

    def events(self) -> list[Event]:
        """Drain the monitor. It does not tell to which connection it happened."""
        return self._monitor.events()

    def cut_clogged(self, now: float) -> None:
        """End connections whose peers have not taken anything for too long."""
        if self._clogs is not None:
            self._clogs.cut(now)

    def close(self) -> None:
        """Close everything; bounded by the linger of the last messages."""
        self._monitor.close()
        self._context.destroy()


class Router(_Socket):
    """Rank 0's socket.

    Args:
        place: Where it listens.
        keys: The group's keys, or None for a socket file.
        heartbeat: How soon silence means that a connection is gone.
        listener: A listening socket made by the parent process, or None.

    Raises:
        ConfigurationError: The place is in use or not this host's.
    """

    def __init__(
        self,
        place: Place,
        keys: Keys | None,
        heartbeat: Heartbeat,
        listener: socket.socket | None = None,
    ) -> None:
        super().__init__(zmq.ROUTER, place, heartbeat)
        self._claim: ipc.Claim | None = None
        self.zap: zmq.Socket[bytes] | None = None
        self._keys = keys
        options = {
            zmq.ROUTER_MANDATORY: 1,  # a send says when its peer is gone
            zmq.ROUTER_HANDOVER: 0,  # nobody takes over another's routing id
            zmq.BACKLOG: 1024,  # many may knock at once, and none has to try again
        }
        for option, value in options.items():
            self.socket.setsockopt(option, value)
        try:
            if keys is not None:
                self._lock_door(keys)
            self._listen(place, listener)
        except BaseException:
            self.close()
            raise

    def _lock_door(self, keys: Keys) -> None:
        """Let in nobody but holders of the secret, whatever fails."""
        self.zap = self._context.socket(zmq.ROUTER)
        self.zap.linger = 0
        self.zap.bind(_ZAP_ENDPOINT)
        self.socket.zap_domain = security.ZAP_DOMAIN
        # Without it a missing ZAP handler would let everybody in.
        self.socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        self.socket.curve_server = True
        self.socket.curve_secretkey = keys.server_secret
        self.socket.curve_publickey = keys.server_public

    def _listen(self, place: Place, listener: socket.socket | None) -> None:
        if listener is not None:
            # libzmq closes what it is given, and the next group needs it again.
            self.socket.setsockopt(zmq.USE_FD, os.dup(listener.fileno()))
        elif place.kind == "ipc":
            self._claim = ipc.Claim(place.port)
        self.socket.ipv6 = place.ipv6
        try:
            self.socket.bind(place.endpoint)
        except zmq.ZMQError as error:
            if error.errno == zmq.EADDRINUSE:
                raise ConfigurationError(
                    f"{place} is in use by another program: end it, or choose another "
                    "master port"
                ) from error
            raise ConfigurationError(
                f"rank 0 cannot listen on {place}: {error.strerror}"
            ) from error

    def receive(self) -> tuple[bytes, list[Buffer]] | None:
        """Take the next message: the peer's id and the frames, or None."""
        try:
            peer = self._take(_NOW)
        except zmq.Again:
            return None
        return peer, self._receive() or []

    def send(self, peer: bytes, frames: list[Buffer]) -> bool:
        """Send to a peer; False if its connection is gone."""
        try:
            self._put(peer, _MORE)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                return False
            raise
        self._send(frames)
        return True

    def admit(self) -> None:
        """Answer those who ask to be let in."""
        while self.zap is not None and self._keys is not None and self.zap.poll(0):
            request = self.zap.recv_multipart(zmq.NOBLOCK)
            self.zap.send_multipart(security.zap_reply(request, self._keys))

    def close(self) -> None:
        """Stop listening, once the last acknowledgements have left."""
        if not self.socket.closed:
            self.socket.linger = _CLOSING_LINGER
        super().close()
        if self._claim is not None:
            self._claim.release()
            self._claim = None


class Dealer(_Socket):
    """A replica's socket.

    Args:
        place: Where rank 0 listens.
        keys: The group's keys, or None for a socket file.
        heartbeat: How soon silence means that a connection is gone.
    """

    def __init__(self, place: Place, keys: Keys | None, heartbeat: Heartbeat) -> None:
        super().__init__(zmq.DEALER, place, heartbeat)
        self._endpoint = place.endpoint
        options = {
            # Nothing is queued for a connection that does not stand, so nothing
            # stale reaches a rank 0 that was started again.
            zmq.IMMEDIATE: 1,
            # Soon enough for the reconnect window, and for a rank 0 that starts at the
            # same time; and no flood while it is down: each time twice as long. It
            # stays the first where handshakes are refused: never over a socket file.
            zmq.RECONNECT_IVL: 10 if place.kind == "ipc" else 50,
            zmq.RECONNECT_IVL_MAX: 500,
            zmq.CONNECT_TIMEOUT: 1500,  # a host that is silent is asked again
        }
        for option, value in options.items():
            self.socket.setsockopt(option, value)
        self.socket.ipv6 = place.ipv6
        if keys is not None:
            self.socket.curve_serverkey = keys.server_public
            self.socket.curve_publickey = keys.client_public
            self.socket.curve_secretkey = keys.client_secret
        if place.kind == "ipc":
            # Ours from the start, so nobody else can put a directory of his own
            # there, with a socket that sends us pickles.
            ipc.socket_path(place.port, create=True)
        try:
            self.socket.connect(place.endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise ConfigurationError(
                f"cannot connect to {place}: {error.strerror}"
            ) from error

    def reconnect(self) -> None:
        """Connect once more, where libzmq does not.

        It gives up for ever when what it receives makes no sense to it, be it one
        byte that was changed on the way, and when it is refused by name.
        """
        with contextlib.suppress(zmq.ZMQError):  # there is nothing to disconnect
            self.socket.disconnect(self._endpoint)
        self.socket.connect(self._endpoint)

    def move(self, place: Place) -> None:
        """Connect to another place instead: rank 0 has a new address."""
        self.hang_up()
        self._endpoint = place.endpoint
        self.socket.ipv6 = place.ipv6
        self.socket.connect(self._endpoint)

    def hang_up(self) -> None:
        """End the connection for good."""
        with contextlib.suppress(zmq.ZMQError):
            self.socket.disconnect(self._endpoint)

    def receive(self) -> list[Buffer] | None:
        """Take the next message's frames, or None."""
        return self._receive()

    def send(self, frames: list[Buffer]) -> bool:
        """Send to rank 0; False if there is no connection."""
        try:
            self._send(frames)
        except zmq.Again:
            return False
        return True

    def wait(self, timeout: float) -> None:
        """Wait until something happens, or for so many seconds."""
        poller = zmq.Poller()
        poller.register(self.socket, zmq.POLLIN)
        poller.register(self.monitor, zmq.POLLIN)
        poller.poll(max(1, int(timeout * 1000)))

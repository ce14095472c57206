"""A TCP proxy that harms the connections which go through it.

The replicas are given the proxy's port, rank 0 has its own. *Up* is the way to
rank 0, *down* the way from it. What happens to a connection is laid down by a
:class:`Fault` as soon as it reaches rank 0; :meth:`Proxy.cut`, :meth:`Proxy.stall`
and their like happen to all at once. The proxy is one thread with an event loop.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from faults.harm import NONE, Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")

LIMIT = 10.0  # seconds for what should take milliseconds
READ_SIZE = 64 * 1024
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST, not FIN


class _Connection:
    """One connection of a replica, and its counterpart to rank 0."""

    def __init__(self, client: socket.socket) -> None:
        self.fault = NONE
        self.client = client
        self.server = socket.socket()
        for half in (self.client, self.server):
            half.setblocking(False)
            half.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ended = asyncio.Event()
        self._reset = False

    def cut(self, *, reset: bool) -> None:
        """Let it end."""
        self._reset = self._reset or reset
        self._ended.set()

    async def until_cut(self) -> None:
        """Wait for the end."""
        await self._ended.wait()

    def close(self) -> None:
        """Close both halves."""
        for half in (self.client, self.server):
            if self._reset:
                half.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            half.close()


class Proxy:
    """Stands between the replicas and rank 0. Use it in a ``with`` block.

    Args:
        target: Rank 0's port on 127.0.0.1.
        faults: The fault of the n-th connection that reaches rank 0, from 0.
        door: Whether connections are let through; else they are closed at once.

    Attributes:
        port: The proxy's own port.
        accepted: How many connections have come.
        reached: How many of them have reached rank 0.
        cuts: How many the proxy has ended.
        up: The bytes that have gone up, in all connections.
        down: The same, down.
    """

    def __init__(
        self,
        target: int,
        faults: Callable[[int], Fault] = lambda _: NONE,
        *,
        door: bool = True,
    ) -> None:
        self.accepted = self.reached = self.cuts = self.up = self.down = 0
        self._target = target
        self._faults = faults
        self._connections: list[_Connection] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._door = door
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    # --- what a test does to all connections ------------------------------

    def cut(self, *, reset: bool = False) -> None:
        """Cut all connections. New ones are let through."""
        self._call(lambda: self._cut_all(reset=reset))

    def close_door(self) -> None:
        """Cut all connections, and close new ones at once."""
        self._call(lambda: self._move_door(is_open=False))

    def open_door(self) -> None:
        """Let new connections through again."""
        self._call(lambda: self._move_door(is_open=True))

    def stall(self) -> None:
        """Keep all connections, and let nothing through."""
        self._call(self._flowing.clear)

    def flow(self) -> None:
        """Let everything through again."""
        self._call(self._flowing.set)

    # --- the event loop ---------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _call(self, job: Callable[[], object]) -> None:
        """Do something in the loop's thread, and wait until it is done."""
        done = threading.Event()

        def do_it() -> None:
            job()
            done.set()

        self._loop.call_soon_threadsafe(do_it)
        assert done.wait(LIMIT), "the proxy does not answer"

    def _keep(self, job: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self._loop.create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _cut_all(self, *, reset: bool) -> None:
        self.cuts += len(self._connections)
        for connection in self._connections:
            connection.cut(reset=reset)

    def _move_door(self, *, is_open: bool) -> None:
        self._door = is_open
        if not is_open:
            self._cut_all(reset=False)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        self.accepted += 1
        connection = _Connection(client)
        self._connections.append(connection)
        self._keep(self._serve(connection))

    async def _serve(self, connection: _Connection) -> None:
        """Be between the two halves of a connection, until it ends."""
        if not self._door:
            connection.cut(reset=False)
        work = self._keep(self._carry(connection))
        await connection.until_cut()
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        self._connections.remove(connection)
        connection.close()

    async def _carry(self, connection: _Connection) -> None:
        """Connect to rank 0, and carry both directions."""
        client, server = connection.client, connection.server
        try:
            await self._loop.sock_connect(server, ("127.0.0.1", self._target))
        except OSError:  # rank 0 is not there
            connection.cut(reset=False)
            return
        fault = connection.fault = self._faults(self.reached)
        self.reached += 1
        lives = None if fault.lives is None else self._keep(self._outlive(connection))
        try:
            await asyncio.gather(
                self._pump(connection, client, server, upwards=True),
                self._pump(connection, server, client, upwards=False),
            )
        finally:
            if lives is not None:
                lives.cancel()

    async def _outlive(self, connection: _Connection) -> None:
        await asyncio.sleep(connection.fault.lives or 0.0)
        self.cuts += 1
        connection.cut(reset=connection.fault.reset)

    async def _pump(
        self,
        connection: _Connection,
        source: socket.socket,
        sink: socket.socket,
        *,
        upwards: bool,
    ) -> None:
        """Carry one direction, and do to it what the connection's fault says."""
        fault = connection.fault
        cut = fault.cut_up if upwards else fault.cut_down
        flip = fault.flip_up if upwards else fault.flip_down
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        deliverer = self._keep(self._deliver(late, sink, connection))
        offset = 0
        try:
            while cut is None or offset < cut:
                limit = READ_SIZE if cut is None else min(READ_SIZE, cut - offset)
                data = await self._loop.sock_recv(source, limit)
                await self._flowing.wait()
                if not data:
                    break
                if flip is not None and offset <= flip < offset + len(data):
                    data = _flipped(data, flip - offset)
                offset += len(data)
                if fault.rate is not None:
                    await asyncio.sleep(len(data) / fault.rate)
                if fault.delay:
                    late.put_nowait((self._loop.time() + fault.delay, data))
                else:
                    await self._loop.sock_sendall(sink, data)
                self._count(len(data), upwards)
        except OSError:
            pass  # either end has closed it
        finally:
            deliverer.cancel()
        self.cuts += cut is not None and offset >= cut
        connection.cut(reset=fault.reset)

    async def _deliver(
        self,
        late: asyncio.Queue[tuple[float, bytes]],
        sink: socket.socket,
        connection: _Connection,
    ) -> None:
        """Pass on what is late."""
        try:
            while True:
                due, data = await late.get()
                await asyncio.sleep(max(0.0, due - self._loop.time()))
                await self._flowing.wait()
                await self._loop.sock_sendall(sink, data)
        except OSError:
            connection.cut(reset=False)

    def _count(self, size: int, upwards: bool) -> None:
        if upwards:
            self.up += size
        else:
            self.down += size

    # --- the block --------------------------------------------------------

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._call(lambda: self._loop.add_reader(self._listener, self._accept))
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._finish(), self._loop).result(LIMIT)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT)
        self._loop.close()
        self._listener.close()

    async def _finish(self) -> None:
        self._loop.remove_reader(self._listener)
        while self._connections:
            for connection in self._connections:
                connection.cut(reset=False)
            await asyncio.sleep(0)
        mine = asyncio.current_task()
        # Those that are done leave the set a turn later, which must not be waited for
        # by a gather that has nothing to do (Python 3.12 and newer).
        while others := [t for t in self._tasks if t is not mine and not t.done()]:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)


def _flipped(data: bytes, index: int) -> bytes:
    changed = bytearray(data)
    changed[index] ^= 0xFF
    return bytes(changed)

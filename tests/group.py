"""Groups in threads: each replica a thread with a Communicator of its own.

``run_group(n, task)`` makes a group, runs ``task(comm)`` on every replica, and
returns the results in rank order. A :class:`Crew` is a group that stays for
several tasks. Nothing here waits without a limit: a task that does not end is
an AssertionError that shows where each replica is.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import sys
import threading
import time
import traceback
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotEnded
from typing import TYPE_CHECKING, Any, TypeVar

from ports import ipc_port, tcp_port

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

LIMIT = 20.0  # seconds for anything that should take milliseconds
SECRET = "a secret of the tests, long enough"


def wait_for(event: threading.Event) -> None:
    """Wait until another replica has come to some point."""
    assert event.wait(LIMIT), "what this replica waits for did not happen"


class Replica:
    """One thread of a group, which runs the tasks that it is given."""

    def __init__(self, rank: int, connect: Callable[[], zcoll.Communicator]) -> None:
        self._connect = connect
        self._tasks: queue.SimpleQueue[Callable[[zcoll.Communicator], None] | None]
        self._tasks = queue.SimpleQueue()
        self.joined: Future[None] = Future()
        self.left: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._live, name=f"replica-{rank}", daemon=True
        )
        self._thread.start()

    def _live(self) -> None:
        try:
            comm = self._connect()
        except BaseException as error:
            self.joined.set_exception(error)
            self.left.set_result(None)
            return
        self.joined.set_result(None)
        while (task := self._tasks.get()) is not None:
            task(comm)
        _settle(self.left, comm.teardown)

    def start(self, task: Callable[[zcoll.Communicator], T]) -> Future[T]:
        """Let the thread run a task; what comes of it arrives in the future."""
        ended: Future[T] = Future()
        self._tasks.put(lambda comm: _settle(ended, functools.partial(task, comm)))
        return ended

    def leave(self) -> None:
        """Let the thread tear its communicator down and end."""
        self._tasks.put(None)

    def where(self) -> str:
        """Show what the thread is doing."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        lines = traceback.format_stack(frame)[-6:] if frame else ["has ended\n"]
        return f"{self._thread.name}:\n{''.join(lines)}"


def _settle(future: Future[T], function: Callable[[], T]) -> None:
    try:
        result = function()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


class Crew:
    """A group of replicas in threads, over ipc, or over TCP with a secret.

    Args:
        size: The number of replicas.
        secret: Its secret, or None.
        ports: Each rank's master port, if they differ because a proxy is between.
        options: More arguments of ``connect``.
    """

    def __init__(
        self,
        size: int,
        *,
        secret: str | None = None,
        ports: Sequence[int] = (),
        **options: Any,
    ) -> None:
        self.size = size
        self.broken = False  # a task has failed: the replicas may be out of step
        self._held = contextlib.ExitStack()
        self.port = ports[0] if ports else self._pick_port(secret)
        ports = ports or [self.port] * size
        options = {"timeout": LIMIT, "secret": secret, **options}
        self._replicas = [
            Replica(
                rank,
                functools.partial(
                    zcoll.connect, "127.0.0.1", ports[rank], rank, size, **options
                ),
            )
            for rank in range(size)
        ]
        self._finish([replica.joined for replica in self._replicas], 2 * LIMIT)

    def _pick_port(self, secret: str | None) -> int:
        return tcp_port() if secret else self._held.enter_context(ipc_port())

    def run(self, task: Callable[[zcoll.Communicator], T]) -> list[T]:
        """Run a task on every replica, and return the results in rank order."""
        return self._finish([replica.start(task) for replica in self._replicas], LIMIT)

    def errors(
        self, kind: type[E], task: Callable[[zcoll.Communicator], object]
    ) -> list[E]:
        """Run a task that fails on every replica, and return the errors."""

        def catch(comm: zcoll.Communicator) -> E:
            try:
                result = task(comm)
            except kind as error:
                return error
            raise AssertionError(f"{kind.__name__} expected, got {result!r}")

        return self.run(catch)

    def close(self) -> None:
        """Tear the group down."""
        for replica in self._replicas:
            replica.leave()
        try:
            self._finish([replica.left for replica in self._replicas], LIMIT)
        finally:
            self._held.close()

    def _finish(self, futures: Sequence[Future[T]], limit: float) -> list[T]:
        """Wait for what all replicas do, and raise the error that tells most."""
        deadline = time.monotonic() + limit
        errors: list[BaseException] = []
        late = []
        for rank, future in enumerate(futures):
            try:
                error = future.exception(max(0.0, deadline - time.monotonic()))
            except NotEnded:
                late.append(rank)
            else:
                errors.extend([error] if error else [])
        self.broken = self.broken or bool(errors or late)
        # Where one replica fails, the others are told so: the cause comes first.
        errors.sort(key=lambda error: isinstance(error, zcoll.GroupError))
        if errors:
            raise errors[0]
        stacks = "\n".join(self._replicas[rank].where() for rank in late)
        assert not late, f"not ended after {limit:g} s: {late}\n{stacks}"
        return [future.result() for future in futures]

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
            return
        with contextlib.suppress(Exception):  # the first error is the one to see
            self.close()


def run_group(
    size: int, task: Callable[[zcoll.Communicator], T], **options: Any
) -> list[T]:
    """Run a task on every replica of a new group, and close the group."""
    with Crew(size, **options) as crew:
        return crew.run(task)

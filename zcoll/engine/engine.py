"""One replica's engine: it feeds its machine, obeys it, and informs the program.

Programs hand over calls and wait on futures; the rest is done by whoever drives the
loop. The user's code (reduce functions, callbacks, unpickling) runs without the wheel.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from zcoll.engine.backlog import Backlogs
from zcoll.engine.functions import encode_function
from zcoll.engine.questions import Questions
from zcoll.engine.short_way import ShortWay
from zcoll.engine.stalls import Stalls, main_thread
from zcoll.errors import (
    ClosedError,
    GroupError,
    ZcollError,
)
from zcoll.memory import pool
from zcoll.protocol.events import (
    WORLD,
    Deliver,
    Fail,
    Joined,
    Missing,
    Note,
    Refused,
    TellFunction,
    TellStack,
)
from zcoll.transport.forks import let_go
from zcoll.worker import Worker, user_code

if TYPE_CHECKING:
    from collections.abc import Callable

    from zcoll.codec import Loads
    from zcoll.engine.request import Request
    from zcoll.errors import CollectiveTimeoutError
    from zcoll.futures import Future
    from zcoll.launchers.settings import Liveness
    from zcoll.payload import Payload
    from zcoll.protocol.events import Identity
    from zcoll.protocol.replica import Replica
    from zcoll.transport.address import Place

_log = logging.getLogger("zcoll.engine")

Key = tuple[int, int]  # a call: its group, and its number there
NOTE_INTERVAL = 60.0  # seconds between log lines of one topic


class Engine(ShortWay):
    """What the engines of rank 0 and of the others share.

    Args:
        identity: Who this replica is.
        replica: Its machine.
        place: Where rank 0 listens.
        liveness: How soon to warn, and how many calls may be in flight.
        loads: What unpickles values, or None for pickle.

    Attributes:
        identity: Who this replica is.
        loads: As given.
        joined: Set when the group is complete, or will not come together.
        refusal: Why it will not, or None.
    """

    def __init__(
        self,
        identity: Identity,
        replica: Replica,
        place: Place,
        liveness: Liveness,
        loads: Loads | None,
    ) -> None:
        super().__init__()
        self.identity = identity
        self.loads = loads
        self.joined = threading.Event()
        self.refusal: ZcollError | None = None
        self._replica = replica
        self._place = place
        self._backlogs = Backlogs(liveness.max_pending)
        self._futures: dict[Key, Future[Any]] = {}
        self._causes: dict[Key, BaseException | None] = {}  # of errors made here
        self._reduce_fns: dict[Key, Callable[[Any, Any], Any]] = {}
        self._questions = Questions(replica)
        self._stalls = Stalls(
            liveness.stall_warning, self._questions.ask, self.run_callback
        )
        self._callbacks: Worker | None = None
        self._functions: Worker | None = None  # pickles those that rank 0 asks for
        self._closing = threading.RLock()  # a finalizer may run while it is held
        self._left = False  # whether the program has said so
        self._aborted = False  # likewise
        self._noted: dict[str, float] = {}
        self._pid = os.getpid()

    # --- for the program's threads ----------------------------------------

    def submit(self, request: Request, *, waits: bool) -> None:
        """Make a call. It is numbered in the order of submission.

        Args:
            request: The call.
            waits: Whether this thread is about to wait for it.

        Raises:
            ClosedError: This replica has left, or the process is a fork.
            BacklogError: Too many calls are in flight, and this thread must not wait.
        """
        made, future = request.made, request.future
        try:
            self._check_group(made.group)
            self._backlogs.enter(made.group, made.operation.name, self._check_group)
        except ClosedError as error:
            error.group = future.group_name
            raise
        self._inbox.append(lambda: self._take_call(request))
        if not waits:
            self._announce()
        if self._ended:
            self._fail_late(future)

    def abort(self, reason: str) -> None:
        """End the group on every replica."""
        self.check()
        self._aborted = True
        self._post(lambda: self._replica.abort(reason))

    def check(self) -> None:
        """Refuse calls that can no longer be made.

        Raises:
            ClosedError: This replica has left, or the process is a fork.
        """
        self.check_process()
        if self._left or self._ended:
            raise ClosedError(
                f"replica {self.identity.rank} has left the group: initialize again "
                "before the next call"
            )

    def _check_group(self, group: int) -> None:
        self.check()
        if group not in self._replica.calling:
            raise ClosedError("this replica has closed the group meanwhile")

    def check_process(self) -> None:
        """Refuse calls and waits in a forked child.

        Raises:
            ClosedError: This is one.
        """
        if os.getpid() != self._pid:
            raise ClosedError(
                f"this process (pid {os.getpid()}) was forked from replica "
                f"{self.identity.rank} (pid {self._pid}): only the parent belongs to "
                "the group. Initialize zcoll after the fork, or start processes by "
                "spawn"
            )

    def let_go(self) -> None:
        """In a forked child: close its copies of the connections."""
        let_go(self._place, listens=self.identity.rank == 0)

    def keep(self, payload: Payload) -> None:
        """Copy what a call still needs of memory that the caller gets back."""
        if payload.stable:
            return
        done = threading.Event()

        def copy_it() -> None:
            payload.snapshot()
            done.set()

        self._post(copy_it)
        while not done.wait(0.1) and self._thread.is_alive():
            pass

    def leave(self, reason: str = "", *, wait: bool = True) -> None:
        """Leave the group: deliver what was sent, say goodbye, close everything.

        It takes at most ``DRAIN_LIMIT`` seconds after the last progress. Again, or
        in a forked child, it does nothing.

        Args:
            reason: Why, for the others' errors.
            wait: Whether to wait until everything is closed.
        """
        if os.getpid() != self._pid:
            return
        with self._closing:
            first, self._left = not self._left, True
        if first:
            self._post(lambda: self._start_leaving(reason))
        if wait:
            self._join()

    def _start_leaving(self, reason: str) -> None:
        self._replica.leave(reason)
        self._leaving = True

    def pending(self, group: int) -> list[Future[Any]]:
        """The calls that have not ended; of one group only, if it is not the world."""
        futures = list(self._futures.values())
        return [each for each in futures if group in (WORLD, each.group)]

    @property
    def over(self) -> bool:
        """Whether the world has ended, or this replica has left it."""
        ended = self._left or self._aborted or self._ended
        return ended or self._replica.over

    # --- groups -----------------------------------------------------------

    def leave_group(self, group: int) -> None:
        """Make no more calls in a group; the others go on.

        Raises:
            ClosedError: This replica has left everything, or the process is a fork.
        """
        self.check()
        self._post(lambda: self._replica.calling.leave(group))

    def close_group(self, group: int, reason: str = "") -> None:
        """Release a group; in a forked child it does nothing."""
        if os.getpid() == self._pid and not self._ended:
            self._post(lambda: self._close_group(group, reason))

    def _close_group(self, group: int, reason: str) -> None:
        self._replica.calling.close(group, reason)
        self._tidy(group)

    def _tidy(self, group: int) -> None:
        """Keep nothing of a group that is released, once its calls have ended."""
        if group not in self._replica.calling:
            self._backlogs.forget(group)

    def group_over(self, group: int) -> bool:
        """Whether a group other than the world has ended, or is released."""
        left = self._left or self._aborted or self._ended
        return left or self._replica.calling.over(group)

    def active(self, group: int) -> list[int]:
        """Who still makes calls in a group."""
        return self._replica.calling.active(group)

    def serve(self, limit: float | None) -> list[int]:
        """Wait until nobody needs this process any more; only rank 0's is needed.

        Args:
            limit: Seconds, or None.

        Returns:
            The ranks that still do; none, unless time has run out.
        """
        return []

    def run_callback(self, job: Callable[[], None]) -> None:
        """Run a callback of a future, or a log line, on the thread for callbacks.

        Without one (the engine or the interpreter has ended) it runs here.
        """
        with self._closing:
            if self._callbacks is None and not self._ended:
                with contextlib.suppress(RuntimeError):  # no new threads at the end
                    self._callbacks = Worker("zcoll-callbacks")
            if self._callbacks is not None:
                self._callbacks.submit(job)
                return
        with user_code():
            job()

    def explain(self, future: Future[Any], timeout: float) -> CollectiveTimeoutError:
        """Say why a call has run out of time: ask rank 0 who is missing."""
        return self._questions.explain(future, timeout, self._post)

    # --- the loop thread --------------------------------------------------

    def _tick(self, now: float) -> None:
        self._stalls.check(self._futures.values(), now)
        self._questions.tick(now)
        self._replica.tick(now)
        pool.tick(now)

    def _take_call(self, request: Request) -> None:
        try:
            self._number(request)
        except ClosedError as error:  # while it was on its way
            error.group = request.future.group_name
            self._leave_backlog(request.made.group)
            request.future.fail(error)
        except Exception:
            request.future.fail(ClosedError("zcoll could not make this call"))
            raise

    def _leave_backlog(self, group: int) -> None:
        self._backlogs.leave(group)
        self._tidy(group)

    def _number(self, request: Request) -> int:
        """Make a call: from here on it has a number, and will end.

        Raises:
            ClosedError: This replica has left the group before.
        """
        self._active_at = time.monotonic()
        seq = self._replica.calling.call(request.made)
        self._keep_track(request, seq)
        return seq

    def _keep_track(self, request: Request, seq: int) -> None:
        """A call has its number: its future ends when it does."""
        made = request.made
        request.future.seq = seq
        key = (made.group, seq)
        self._futures[key] = request.future
        if made.error is not None:
            self._causes[key] = made.error.__cause__
        if request.reduce_fn is not None:
            self._reduce_fns[key] = request.reduce_fn

    def _inform(self, instruction: object, now: float) -> None:
        """Pass what the replica's machine says on to the program."""
        if isinstance(instruction, Deliver):
            key = (instruction.group, instruction.seq)
            self._causes.pop(key, None)
            self._take_future(key, now).deliver(instruction.payload)
        elif isinstance(instruction, Fail):
            self._fail(instruction, now)
        elif isinstance(instruction, Joined):
            self.identity = self._replica.identity  # rank 0 may have given the rank
            self.joined.set()
        elif isinstance(instruction, Refused):
            self.refusal = instruction.error
            self.joined.set()
        elif isinstance(instruction, TellStack):
            self._replica.tell(*main_thread(), now - self._active_at)
        elif isinstance(instruction, TellFunction):
            self._send_function(instruction.group, instruction.seq)
        elif isinstance(instruction, Missing):
            self._questions.answer(instruction)
        elif isinstance(instruction, Note):
            self._log_note(instruction, now)

    def _take_future(self, key: Key, now: float) -> Future[Any]:
        """A call has ended."""
        self._active_at = now
        self._leave_backlog(key[0])
        self._reduce_fns.pop(key, None)
        return self._futures.pop(key)

    def _fail(self, instruction: Fail, now: float) -> None:
        key = (instruction.group, instruction.seq)
        error = copy.copy(instruction.error)  # its traceback will be its own
        error.__cause__ = self._causes.pop(key, None)
        self._take_future(key, now).fail(error)

    def _send_function(self, group: int, seq: int) -> None:
        """Rank 0 needs a reduce function: pickling it may run the user's code."""
        reduce_fn = self._reduce_fns.get((group, seq))
        if reduce_fn is None:
            return

        def job() -> None:
            function = encode_function(reduce_fn, self.identity.rank)
            self._post(lambda: self._replica.calling.equip(group, seq, function))

        # Not where callbacks run: those may take as long as they like.
        if self._functions is None:
            with contextlib.suppress(RuntimeError):  # no new threads at the end
                self._functions = Worker("zcoll-functions")
        if self._functions is not None:
            self._functions.submit(job)
        else:
            job()

    def _log_note(self, note: Note, now: float) -> None:
        if note.topic and now - self._noted.get(note.topic, -1e9) < NOTE_INTERVAL:
            return
        self._noted[note.topic] = now
        level = logging.WARNING if note.warning else logging.INFO
        # Handlers are the program's code too, and may block.
        self.run_callback(lambda: _log.log(level, "%s", note.text))

    def _hurry(self) -> None:
        self._replica.leave("")

    def _give_up(self, error: GroupError | None) -> None:
        left = f"replica {self.identity.rank} has left the group"
        for future in list(self._futures.values()):
            self._leave_backlog(future.group)
            future.fail(copy.copy(error) if error is not None else ClosedError(left))
        self._futures.clear()
        if not self.joined.is_set():
            self.refusal = error
            self.joined.set()
        with self._closing:
            worker, self._callbacks = self._callbacks, None
        for each in (worker, self._functions):
            if each is not None:
                each.stop()

    def _fail_late(self, future: Future[Any]) -> None:
        """The loop ended while a call was on its way to it."""
        self._join()
        if not future.done():
            future.fail(ClosedError("the group ended before this call was made"))

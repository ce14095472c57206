"""What feeds the machines and obeys them, and which thread does it.

The machines and the sockets belong to one thread at a time: to whoever holds the
wheel. A thread that waits for a call takes it and drives, which saves two
hand-overs between threads, the greater part of a small call's time. The loop thread
drives when nobody else does. Other threads hand jobs to the driver.

The driver sleeps in a poll, with the wheel. The loop thread does not: it watches the
sockets' descriptors, so that who comes to wait need not wake it first.
"""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import select
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import zmq

from zcoll import codec
from zcoll.engine.bell import Bell
from zcoll.engine.shield import Woken, shield
from zcoll.errors import GroupError
from zcoll.memory import pool
from zcoll.worker import user_code

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from zcoll.engine.lookout import Lookout
    from zcoll.engine.shield import NoShield, Shield
    from zcoll.futures import Future

    Poll = Callable[[int], list[Any]]  # for so many milliseconds

_log = logging.getLogger("zcoll.engine")

IDLE = 0.1  # seconds of sleep at most, so that times are noticed
TICK = 0.02  # seconds between two looks at what has become due
REST = 0.005  # seconds without a driver after which the loop thread drives
STEP_LIMIT = 0.05  # seconds that the loop thread keeps the wheel, at most
DRAIN_LIMIT = 2.0  # seconds after the last progress that a leaving replica waits
HURRY = 1.5  # after so many of them it says goodbye without what is not delivered

LANES: frozenset[Any] = frozenset(["lanes"])  # among what is ready: look at them
_NOTHING: frozenset[Any] = frozenset()


class Errand(NamedTuple):
    """Code of the program's that has to run, for the sake of a call.

    Attributes:
        group: Those of one group run one after the other.
        run: Runs it, without the wheel; gives a job to be done with it.
    """

    group: int
    run: Callable[[], Callable[[], object]]


class Loop:
    """The wheel, the loop thread, the inbox, and the end.

    A subclass says what is taken in and done, and what is left to deliver.
    """

    def __init__(self) -> None:
        self._inbox: deque[Callable[[], object]] = deque()
        self._errands: deque[Errand] = deque()  # of who drives, if it is for a call
        self._wheel = threading.Lock()
        self._bell = Bell()
        self._lookout: Lookout | None = None  # once there are lanes to look at
        self._poller = zmq.Poller()
        self._watched = select.poll()
        self._register(self._bell)
        self._sleeping = False  # the driver is, or is about to
        self._watching = False  # the loop thread is, or is about to
        self._stepping = False  # the loop thread has the wheel
        self._resting = False  # the loop thread is, until it is called
        self._host: int | None = None  # the group for which a thread drives
        self._calls: queue.SimpleQueue[bool] = queue.SimpleQueue()  # is it urgent?
        self._turns = 0  # of driving by the program's threads
        self._waiting: deque[None] = deque()  # one for each that cannot drive
        self._tick_at = 0.0
        self._thread = threading.Thread(
            target=self._run, name="zcoll-loop", daemon=True
        )
        self._leaving = False
        self._finished = False
        self._ended = False
        self._broken: Exception | None = None
        self._progress: Any = None
        self._progress_at: float | None = None
        self._hurried = False

    def _register(self, source: zmq.Socket[bytes] | Bell) -> None:
        """Let what arrives at a socket, or at the bell, end a sleep."""
        is_bell = isinstance(source, Bell)
        self._poller.register(source.fd if is_bell else source, zmq.POLLIN)
        self._watched.register(int(source.fd), select.POLLIN)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def _post(self, job: Callable[[], object]) -> None:
        """Have a job done by the driver. Jobs are done in order."""
        self._inbox.append(job)
        self._announce()

    def _announce(self) -> None:
        """There is something to do: wake whoever does it."""
        if self._sleeping or self._watching:
            self._bell.ring()
        elif not self._wheel.locked():  # else its holder looks before it leaves it
            self._calls.put(True)

    def _join(self) -> None:
        """Wait until the thread has ended."""
        if threading.current_thread() is not self._thread and self._thread.ident:
            self._thread.join()

    # --- the program's threads --------------------------------------------

    def wait(self, future: Future[Any], timeout: float | None) -> None:
        """Wait until a call has ended, or for so many seconds.

        Whoever waits drives meanwhile, unless somebody else does.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            drove = True
            with shield(thorough=True) as guard, contextlib.suppress(Woken):
                drove = self._drive(future, deadline, guard)
            if not (drove or future.done()):
                self._announce()  # this call may be among the jobs
                self._wait_for_others(future, deadline)
            if future.done() or time.monotonic() >= deadline:
                return

    def _wait_for_others(self, future: Future[Any], deadline: float) -> None:
        self._waiting.append(None)
        try:
            future.block(deadline - time.monotonic())
        finally:
            self._waiting.pop()

    def _drive(
        self, future: Future[Any], deadline: float, guard: Shield | NoShield
    ) -> bool:
        """Do the loop's work until a call has ended, or the time is over.

        Returns:
            False if another thread does it.

        Raises:
            Woken: A signal has come.
        """
        while self._take_wheel(future.group):
            errand = None
            try:
                errand = self._work(future, deadline, guard)
            except Exception as broken:
                self._broken = broken
            finally:
                self._leave_wheel()
            if errand is None:
                return self._broken is None and not self._leaving
            self._run_errand(errand, guard)
        return False

    def _work(
        self, future: Future[Any], deadline: float, guard: Shield | NoShield
    ) -> Errand | None:
        """Take steps until the end, or until there is an errand."""
        if self._lookout is not None:
            self._lookout.get_up()
        self._act(_NOTHING)
        while not self._errands:
            if future.done() or self._leaving:
                return None
            pause = self._pause()
            if deadline < math.inf:
                pause = min(pause, deadline - time.monotonic())
                if pause <= 0:
                    return None
            self._act(self._sleep(pause, guard, self._poller.poll))
        return self._errands.popleft()

    def _run_errand(self, errand: Errand, guard: Shield | NoShield) -> None:
        """Run the program's own code, without the wheel."""
        job = None
        try:
            with user_code():
                job = guard.run(errand.run)
        finally:
            if job is None or guard.raised is not None:  # a signal interrupted it
                self._delegate(errand)
        if guard.raised is not None:
            raise guard.raised
        self._inbox.append(job)

    def _sleep(
        self, pause: float, guard: Shield | NoShield, poll: Poll
    ) -> AbstractSet[Any]:
        """Sleep until something happens: what is ready."""
        lookout = self._lookout
        if lookout is not None and lookout.lanes.active:
            return self._look_and_sleep(lookout, pause, guard, poll)
        self._sleeping = True
        try:
            timeout = 0 if self._inbox else math.ceil(pause * 1000)
            return dict(guard.sleep(poll, timeout)).keys()
        finally:
            self._sleeping = False

    def _look_and_sleep(
        self, lookout: Lookout, pause: float, guard: Shield | NoShield, poll: Poll
    ) -> AbstractSet[Any]:
        """Look at the lanes for a while before the sleep."""
        self._sleeping = True
        try:
            if lookout.look(self._inbox):
                if time.monotonic() < self._tick_at:
                    return LANES
                found = True  # now and then the sockets are looked at too
            else:
                found = not lookout.lie_down() or bool(self._inbox)
            timeout = 0 if found else math.ceil(pause * 1000)
            ready = guard.sleep(poll, timeout)
            return LANES.union(source for source, _ in ready)
        finally:
            self._sleeping = False
            lookout.get_up()

    def _take_wheel(self, group: int) -> bool:
        """Take it for a call of a group, unless another thread drives."""
        if self._leaving or self._ended or self._broken is not None:
            return False
        if self._wheel.acquire(blocking=False) or (
            self._stepping and self._wheel.acquire(timeout=STEP_LIMIT)
        ):
            self._host = group
            return True
        return False

    def _leave_wheel(self) -> None:
        """Give it up; the loop thread learns of what is left to do."""
        self._host = None
        self._turns += 1
        while self._errands:
            self._delegate(self._errands.popleft())
        busy = self._is_busy()
        self._wheel.release()
        if self._watching:
            self._bell.ring()
        elif self._inbox or self._waiting or busy or self._leaving or self._broken:
            self._calls.put(True)
        elif self._resting:
            self._calls.put(False)

    def _lend_wheel(self) -> None:
        """Give it up for a moment: the loop thread takes it only if that is long."""
        self._host = None
        self._turns += 1
        self._wheel.release()
        if self._resting:
            self._calls.put(False)

    # --- the loop thread --------------------------------------------------

    def _run(self) -> None:
        error: GroupError | None = None
        pool.open(self)
        try:
            while not self._finished and self._broken is None:
                self._patrol()
        except Exception as broken:
            self._broken = broken
        if self._broken is not None:
            text = "zcoll's loop has failed"
            _log.error("%s: this is a bug of zcoll", text, exc_info=self._broken)
            error = GroupError(f"{text}: {codec.describe(self._broken)}")
        with self._wheel:
            self._end(error)

    def _patrol(self) -> None:
        """Take a step, and watch for the next; or let somebody else drive."""
        if not self._wheel.acquire(blocking=False):
            self._rest()
            return
        self._stepping = True
        try:
            self._act(self._look())
            self._finished = self._leaving and self._drained()
            # Descriptors only tell of what comes after a look that has found nothing.
            self._watching = True
            if self._lookout is not None:
                self._lookout.lie_down()
            if self._look() or self._inbox:
                self._watching = False
        finally:
            self._stepping = False
            self._wheel.release()
        if self._watching:
            if not self._finished:
                self._watched.poll(math.ceil(self._pause() * 1000))
            self._watching = False

    def _look(self) -> set[Any]:
        """What is ready."""
        ready = {source for source, _ in self._poller.poll(0)}
        if self._lookout is not None and self._lookout.lanes.waiting:
            ready |= LANES
        return ready

    def _rest(self) -> None:
        """Let others drive, until nobody has for a while or there is an urgent call."""
        self._resting = True
        urgent = self._wheel.locked() and self._calls.get()
        self._resting = False
        turns = -1
        while not urgent and turns != self._turns:
            turns = self._turns
            with contextlib.suppress(queue.Empty):
                urgent = self._calls.get(timeout=REST)

    def _act(self, ready: AbstractSet[Any]) -> None:
        """Do everything that is asked for: by jobs, messages, and the time."""
        if self._bell.fd in ready:
            self._bell.silence()
        inbox = self._inbox
        while inbox:
            inbox.popleft()()
        now = time.monotonic()
        if ready:
            self._receive(ready, now)
        if now >= self._tick_at:
            self._tick_at = now + TICK
            self._tick(now)
        self._obey(now)
        if self._lookout is not None:
            self._lookout.lanes.ring()

    def _drained(self) -> bool:
        """Whether a replica that leaves may go."""
        now = time.monotonic()
        if self._inbox:
            return False
        done, progress = self._state_of_drain()
        if progress != self._progress or self._progress_at is None:
            self._progress, self._progress_at = progress, now
        waited = now - self._progress_at
        if not done and not self._hurried and waited > HURRY:
            self._hurried = True
            self._hurry()
            self._act(_NOTHING)
        return done or (self._hurried and waited > DRAIN_LIMIT)

    def _end(self, error: GroupError | None) -> None:
        """Close everything; nobody may be left waiting."""
        self._ended = True
        try:
            self._close()
        except Exception:
            _log.exception("zcoll could not close its sockets")
        while self._inbox:
            try:
                self._inbox.popleft()()
            except Exception:
                _log.exception("zcoll could not do what was left to do")
        self._give_up(error)
        self._bell.close()
        pool.close(self)

    # --- what a subclass says ---------------------------------------------

    def _pause(self) -> float:
        """How long the driver may sleep, in seconds."""
        return IDLE

    def _receive(self, ready: AbstractSet[Any], now: float) -> None:
        """Take in what has arrived at the sockets that are ready."""
        raise NotImplementedError

    def _tick(self, now: float) -> None:
        """Notice what has become due."""
        raise NotImplementedError

    def _obey(self, now: float) -> None:
        """Carry out what the machines have decided."""
        raise NotImplementedError

    def _is_busy(self) -> bool:
        """Whether something is on its way that goes on as answers arrive."""
        return self._lookout is not None and self._lookout.lanes.busy

    def _delegate(self, errand: Errand) -> None:
        """Run an errand on another thread, and post the job that it gives."""
        raise NotImplementedError

    def _state_of_drain(self) -> tuple[bool, Any]:
        """Whether nothing is left to deliver, and what changes with progress."""
        raise NotImplementedError

    def _hurry(self) -> None:
        """Say goodbye without waiting any longer for what is not delivered."""
        raise NotImplementedError

    def _close(self) -> None:
        """Close the sockets."""
        raise NotImplementedError

    def _give_up(self, error: GroupError | None) -> None:
        """Tell whoever still waits that nothing more will come."""
        raise NotImplementedError

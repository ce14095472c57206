"""What a program may do at the wrong moment, or with an odd argument."""

from __future__ import annotations

import asyncio
import math
import os
import pickle
import select
import signal
import threading
from typing import Any

import pytest
from group import LIMIT, Crew, run_group

import zcoll
from zcoll import Future


def test_a_call_behind_teardown_ends_with_it() -> None:
    """Another thread's call, for instance; the same one on every replica."""

    def task(comm: zcoll.Communicator) -> str:
        torn = threading.Thread(target=comm.teardown)
        sent = comm._start  # the call goes out right behind the teardown
        behind: list[Any] = []

        def submit(operation: Any, *rest: Any, **options: Any) -> Any:
            future = sent(operation, *rest, **options)
            if operation.ends:
                comm._start = sent  # type: ignore[method-assign]
                behind.append(comm.allreduce_async(1))
            return future

        comm._start = submit  # type: ignore[method-assign]
        torn.start()
        torn.join(LIMIT)
        assert not torn.is_alive()
        return str(behind[0].exception(LIMIT))

    for text in run_group(2, task):
        assert "torn down" in text


def test_two_threads_tear_down_one_group() -> None:
    def task(comm: zcoll.Communicator) -> None:
        threads = [threading.Thread(target=comm.teardown) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
            assert not thread.is_alive()

    run_group(3, task)


def test_a_result_can_be_awaited_after_teardown() -> None:
    def task(comm: zcoll.Communicator) -> int:
        future = comm.allreduce_async(1)
        called = threading.Event()
        future.add_done_callback(lambda _: called.set())
        assert called.wait(LIMIT)
        comm.teardown()

        async def collect() -> int:
            return await asyncio.wait_for(future, LIMIT)

        later = threading.Event()
        future.add_done_callback(lambda _: later.set())
        assert later.wait(LIMIT)
        return asyncio.run(collect())

    assert run_group(2, task) == [2, 2]


class Interrupting:
    """Is interrupted while it is unpickled, the first time."""

    armed = True

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, ()


def _rebuild() -> int:
    if Interrupting.armed:
        Interrupting.armed = False
        raise KeyboardInterrupt
    return 11


def test_an_interrupt_while_a_result_is_unpickled_loses_nothing() -> None:
    Interrupting.armed = False
    assert pickle.loads(pickle.dumps(Interrupting())) == 11
    with zcoll.connect() as comm:
        Interrupting.armed = True
        future: Future[Any] = comm.allreduce_async(Interrupting())
        with pytest.raises(KeyboardInterrupt):
            future.result()
        assert future.result() == 11


@pytest.mark.parametrize("limit", [math.inf, 1e10, 1e300])
def test_a_limit_that_no_lock_can_count_is_none(limit: float) -> None:
    def task(comm: zcoll.Communicator) -> list[int]:
        future = comm.allreduce_async(1)
        return [comm.allreduce(1, timeout=limit), future.result(limit)]

    assert run_group(2, task) == [[2, 2]] * 2


class Nameless:
    """A reduce function whose name is the program's own code, which fails."""

    def __call__(self, a: int, b: int) -> int:
        return a + b

    def __repr__(self) -> str:
        raise RuntimeError("no name")


def test_a_reduce_function_is_not_asked_for_its_name() -> None:
    assert run_group(2, lambda comm: comm.allreduce(1, Nameless())) == [2, 2]


@pytest.mark.parametrize("size", [1, 2])
def test_what_cannot_be_called_is_no_reduce_function(size: int) -> None:
    def task(comm: zcoll.Communicator) -> int:
        with pytest.raises(zcoll.ConfigurationError, match="reduce_fn"):
            comm.allreduce(1, None)  # type: ignore[arg-type]
        return comm.allreduce(1)  # it used up no call

    assert run_group(size, task) == [size] * size


def test_a_reason_may_be_an_exception() -> None:
    def task(comm: zcoll.Communicator) -> str:
        if comm.replica_rank == 1:
            comm.abort(ValueError("no space left"))  # type: ignore[arg-type]
        with pytest.raises(zcoll.AbortedError) as caught:
            comm.barrier()
        return caught.value.reason

    assert run_group(2, task) == ["no space left"] * 2


def test_who_aborts_may_tear_down_at_once() -> None:
    """The word of the group's end need not have come back yet."""

    def task(comm: zcoll.Communicator) -> None:
        if comm.replica_rank == 1:
            comm.abort("enough")
        else:
            with pytest.raises(zcoll.AbortedError, match="enough"):
                comm.barrier()
        comm.teardown()

    for _ in range(10):
        run_group(2, task)


def test_a_signal_handler_may_abort() -> None:
    with zcoll.connect() as alone:
        before = signal.signal(signal.SIGUSR1, lambda *_: alone.abort("preempted"))
        try:
            os.kill(os.getpid(), signal.SIGUSR1)
            with pytest.raises(zcoll.AbortedError, match="preempted"):
                alone.barrier()
        finally:
            signal.signal(signal.SIGUSR1, before)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_keeps_no_copy_of_other_descriptors() -> None:
    """Or a reader of the program's own pipe would never see its end."""
    with Crew(2) as crew:
        crew.run(lambda comm: comm.barrier())
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(writes)
            ended = bool(select.select([reads], [], [], LIMIT)[0])
            os._exit(0 if ended and os.read(reads, 1) == b"" else 1)
        os.close(writes)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        os.close(reads)
        assert crew.run(lambda comm: comm.allreduce(1)) == [2, 2]

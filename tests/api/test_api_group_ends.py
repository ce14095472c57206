"""How groups end: closed, dropped, left behind; and nobody is left waiting."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from typing import Any

import pytest
from group import LIMIT, Crew, run_group, wait_for
from ports import ipc_port

import zcoll


def made(group: zcoll.Communicator | None) -> zcoll.Communicator:
    assert group is not None
    return group


# --- close ------------------------------------------------------------------------


def test_the_reason_of_a_close_reaches_the_others(trio: Crew) -> None:
    def task(comm: zcoll.Communicator) -> Any:
        group = comm.dup()
        if comm.replica_rank == 1:
            group.close("no batches")
            return None
        with pytest.raises(zcoll.ReplicaExitedError) as caught:
            group.barrier(timeout=LIMIT)
        error = caught.value
        return error.rank, error.reason, error.group == group.name, str(error)[:10]

    seen = (1, "no batches", True, "replica 1 ")
    assert trio.run(task) == [seen, None, seen]


def test_a_block_that_raises_closes_its_group_with_the_error(trio: Crew) -> None:
    def task(comm: zcoll.Communicator) -> str:
        try:
            with comm.dup() as group:
                if comm.replica_rank == 2:
                    raise ValueError("no disk")
                group.barrier(timeout=LIMIT)
        except ValueError as error:
            return str(error)
        except zcoll.ReplicaExitedError as error:
            return error.reason
        return "it went on"

    assert trio.run(task) == ["ValueError: no disk"] * 2 + ["no disk"]
    assert trio.run(lambda comm: comm.allreduce(1)) == [3] * 3


def test_outstanding_calls_of_a_closed_group_end_when_another_closes_it(
    trio: Crew,
) -> None:
    closed = threading.Event()

    def task(comm: zcoll.Communicator) -> Any:
        group = comm.dup()
        if comm.replica_rank == 1:
            future = group.allreduce_async(1)
            group.close()
            closed.set()
            return type(future.exception(LIMIT))
        wait_for(closed)
        group.close()  # without that call, which can never end well now
        return None

    assert trio.run(task) == [None, zcoll.ReplicaExitedError, None]


def test_outstanding_calls_of_a_closed_group_still_count(trio: Crew) -> None:
    def task(comm: zcoll.Communicator) -> list[int]:
        group = comm.dup()
        future = group.allgather_async(comm.replica_rank)
        group.close()
        return future.result(LIMIT)

    assert trio.run(task) == [[0, 1, 2]] * 3


@pytest.mark.parametrize("end", ["close", "leave"])
def test_a_call_that_another_thread_has_ended_the_group_for(
    trio: Crew, end: str
) -> None:
    """It was checked before, and is too late: an error, and all else goes on."""

    def task(comm: zcoll.Communicator) -> Any:
        group = comm.dup()
        before = group.allreduce_async(1)
        getattr(group, end)()
        group._done = ""  # this thread has looked before the other one did that
        errors = []
        for _ in range(2):
            with pytest.raises(zcoll.ClosedError) as caught:  # at once, or in the end
                group.allreduce_async(1).result(LIMIT)
            errors.append(caught.value)
        assert before.result(LIMIT) == 3
        return [(type(error), error.group == group.name) for error in errors]

    assert trio.run(task) == [[(zcoll.ClosedError, True)] * 2] * 3
    assert trio.run(lambda comm: comm.allreduce(1)) == [3] * 3


def test_nobody_is_active_in_a_closed_group(crew: Crew) -> None:
    def task(comm: zcoll.Communicator) -> tuple[list[int], list[int]]:
        group = comm.dup()
        before = group.active_ranks
        group.close()
        comm.barrier()  # until the loop has done it
        return before, group.active_ranks

    assert crew.run(task) == [(list(range(crew.size)), [])] * crew.size


# --- dropped ----------------------------------------------------------------------


def test_a_dropped_group_is_a_closed_one(trio: Crew) -> None:
    def task(comm: zcoll.Communicator) -> Any:
        group = comm.dup()
        if comm.replica_rank == 1:
            dropped = weakref.ref(group)
            del group
            assert dropped() is None, "only the program holds it"
            return None
        with pytest.raises(zcoll.ReplicaExitedError):
            group.barrier(timeout=LIMIT)
        return None

    trio.run(task)


def test_a_future_keeps_its_group(trio: Crew) -> None:
    called = threading.Event()

    def task(comm: zcoll.Communicator) -> list[int]:
        group = comm.dup()
        if comm.replica_rank != 1:
            wait_for(called)
            return group.allgather(comm.replica_rank)
        future = group.allgather_async(1)
        del group
        gc.collect()
        called.set()
        return future.result(LIMIT)

    assert trio.run(task) == [[0, 1, 2]] * 3


def test_a_group_keeps_the_world_that_it_is_made_of() -> None:
    """A function may connect, and give only the group that it needs."""
    found: dict[int, Any] = {}

    with ipc_port() as port:

        def live(rank: int) -> None:
            group = zcoll.connect("127.0.0.1", port, rank, 2, timeout=LIMIT).dup().dup()
            gc.collect()
            found[rank] = group.allgather(rank, timeout=LIMIT)
            ended = weakref.ref(made(group._world))
            group.teardown(timeout=LIMIT)
            del group
            found[rank].append(ended() is None)

        threads = [threading.Thread(target=live, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * LIMIT)
    assert found == {0: [0, 1, True], 1: [0, 1, True]}


def test_a_chain_of_groups_does_not_keep_those_between(crew: Crew) -> None:
    def task(comm: zcoll.Communicator) -> int:
        group = comm
        between = []
        for _ in range(20):
            group = group.dup()
            between.append(weakref.ref(group))
        assert len(group.name) < 200
        return sum(each() is not None for each in between)

    assert crew.run(task) == [1] * crew.size


# --- replicas that go -------------------------------------------------------------


def test_a_group_without_a_replica_that_has_gone_goes_on_to_its_teardown() -> None:
    gone, gave_up = threading.Event(), threading.Event()

    def task(comm: zcoll.Communicator) -> Any:
        rank = comm.replica_rank
        group = comm.split("pair" if rank < 2 else None)
        if group is None:
            comm.close("its work is done")
            gone.set()
            return None
        wait_for(gone)
        with pytest.raises(zcoll.ReplicaExitedError):
            comm.barrier(timeout=LIMIT)
        total = group.allreduce(1, timeout=LIMIT)
        if rank == 0:  # it waits for the other one, which still makes a call
            with pytest.raises(zcoll.CollectiveTimeoutError):
                group.teardown(timeout=0.05)
            gave_up.set()
            with pytest.raises(zcoll.MismatchError):
                group.teardown(timeout=LIMIT)
        else:
            wait_for(gave_up)
            with pytest.raises(zcoll.MismatchError):
                group.barrier(timeout=LIMIT)
        return total

    assert run_group(3, task) == [2, 2, None]


def test_a_group_made_after_a_member_has_gone_is_over_at_once() -> None:
    gone = threading.Event()

    def task(comm: zcoll.Communicator) -> Any:
        if comm.replica_rank == 2:
            with pytest.raises(zcoll.CollectiveTimeoutError):
                comm.dup(timeout=0.05)
            comm.close("it gave up")
            gone.set()
            return None
        wait_for(gone)
        group = comm.dup(timeout=LIMIT)
        with pytest.raises(zcoll.ReplicaExitedError) as caught:
            group.barrier(timeout=LIMIT)
        return caught.value.rank, caught.value.reason

    assert run_group(3, task) == [(2, "it gave up")] * 2 + [None]


@pytest.mark.parametrize("by", ["world", "group"])
def test_an_abort_ends_the_calls_of_every_group(by: str) -> None:
    calling = threading.Barrier(3, timeout=LIMIT)

    def task(comm: zcoll.Communicator) -> Any:
        all_of_them = comm.dup()
        pair = comm.split(int(comm.replica_rank > 0))
        if comm.replica_rank == 2:
            calling.wait()
            (comm if by == "world" else all_of_them).abort("no disk")
        else:
            futures = [all_of_them.barrier_async(), comm.barrier_async()]
            if comm.replica_rank == 1:
                futures.append(made(pair).barrier_async())
            calling.wait()
            for future in futures:
                error = future.exception(LIMIT)
                assert isinstance(error, zcoll.AbortedError)
                assert (error.rank, error.reason) == (2, "no disk")
        for group in (comm, all_of_them, made(pair)):
            with pytest.raises(zcoll.AbortedError):
                group.barrier(timeout=LIMIT)

    run_group(3, task)


# --- rank 0 leaves, and serves ----------------------------------------------------


def test_rank_0_that_leaves_and_tears_down_at_once_waits_for_the_others() -> None:
    waits, may_go = threading.Event(), threading.Event()
    texts = []

    def task(comm: zcoll.Communicator) -> Any:
        if comm.replica_rank == 0:
            comm.leave()
            with pytest.raises(zcoll.CollectiveTimeoutError) as caught:
                comm.teardown(timeout=0.3)
            texts.append(str(caught.value))
            waits.set()
            comm.teardown(timeout=LIMIT)
            may_go.set()
            return caught.value.missing
        wait_for(waits)
        assert not may_go.is_set()
        total = comm.allreduce(comm.replica_rank, timeout=LIMIT)
        comm.teardown(timeout=LIMIT)
        return total

    assert run_group(3, task) == [[1, 2], 3, 3]
    (text,) = texts
    assert text == (
        "teardown did not end within 0.3 s: rank 0's process serves replicas 1-2, who "
        "may still make calls; call teardown() again, or close()"
    )


def test_rank_0_names_only_those_that_may_still_make_calls() -> None:
    waits, left = threading.Event(), threading.Event()

    def task(comm: zcoll.Communicator) -> Any:
        if comm.replica_rank == 0:
            wait_for(left)
            comm.leave()
            with pytest.raises(zcoll.CollectiveTimeoutError) as caught:
                comm.teardown(timeout=0.3)
            waits.set()
            comm.teardown(timeout=LIMIT)
            return caught.value.missing
        if comm.replica_rank == 1:
            comm.leave()
            with pytest.raises(zcoll.ClosedError, match="by leave"):
                comm.barrier()
            left.set()
        wait_for(waits)
        comm.teardown(timeout=LIMIT)
        return None

    assert run_group(3, task) == [[2], None, None]


@pytest.mark.parametrize("stays", [0, 1, 2])
def test_all_but_one_leave_with_calls_outstanding(stays: int) -> None:
    def task(comm: zcoll.Communicator) -> Any:
        futures = [comm.allgather_async(comm.replica_rank) for _ in range(3)]
        if comm.replica_rank != stays:
            comm.leave()
        else:
            for future in futures:
                future.result(LIMIT)
            last = comm.allgather("alone", timeout=LIMIT)
            while zcoll.ABSENT not in last or last.count(zcoll.ABSENT) < 2:
                last = comm.allgather("alone", timeout=LIMIT)
            assert [value for value in last if value is not zcoll.ABSENT] == ["alone"]
            assert comm.active_ranks == [stays]
            assert comm.allreduce(7, lambda a, b: a // 0, timeout=LIMIT) == 7
        values = [future.result(LIMIT) for future in futures]
        comm.teardown(timeout=LIMIT)
        return values

    assert run_group(3, task) == [[[0, 1, 2]] * 3] * 3


def test_all_leave_the_world_and_go_on_in_groups(trio: Crew) -> None:
    def task(comm: zcoll.Communicator) -> list[int]:
        outer = comm.dup()
        inner = outer.dup()
        future = outer.barrier_async()
        outer.leave()
        values = inner.allgather(comm.replica_rank, timeout=LIMIT)
        future.result(LIMIT)
        outer.teardown(timeout=LIMIT)
        assert inner.allreduce(1, timeout=LIMIT) == 3, "it does not mind"
        inner.teardown(timeout=LIMIT)
        return values

    assert trio.run(task) == [[0, 1, 2]] * 3


# --- limits and room --------------------------------------------------------------


def test_each_group_has_room_for_its_own_calls() -> None:
    full = threading.Barrier(2, timeout=LIMIT)

    def task(comm: zcoll.Communicator) -> int:
        one, other = comm.dup(), comm.dup()
        if comm.replica_rank == 1:
            futures = [one.allreduce_async(1) for _ in range(3)]
            full.wait()
            futures += [other.allreduce_async(1) for _ in range(3)]
        else:
            full.wait()
            futures = [other.allreduce_async(1) for _ in range(3)]
            futures += [one.allreduce_async(1) for _ in range(3)]
        return sum(future.result(LIMIT) for future in futures)

    with Crew(2, max_pending=3) as crew:
        assert crew.run(task) == [12, 12]


def test_who_waits_for_room_in_a_group_that_is_closed_is_told() -> None:
    full, closed = threading.Event(), threading.Event()

    def task(comm: zcoll.Communicator) -> Any:
        group = comm.dup()
        if comm.replica_rank == 1:
            wait_for(closed)
            return [group.allreduce(1, timeout=LIMIT) for _ in range(2)]
        futures = [group.allreduce_async(1) for _ in range(2)]

        def close() -> None:
            wait_for(full)
            group.close()
            closed.set()

        closer = threading.Thread(target=close)
        closer.start()
        full.set()
        with pytest.raises(zcoll.ClosedError, match="closed"):
            group.allreduce_async(1).result(LIMIT)
        closer.join(LIMIT)
        return [future.result(LIMIT) for future in futures]

    with Crew(2, max_pending=2) as crew:
        assert crew.run(task) == [[2, 2]] * 2


def test_a_stalled_call_of_a_group_names_the_group_and_the_missing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warned = threading.Event()
    names = []

    def warnings() -> list[str]:
        texts = [record.getMessage() for record in caplog.records]
        return [text for text in texts if "has waited for" in text]

    def task(comm: zcoll.Communicator) -> None:
        group = made(comm.split(0, key=-comm.replica_rank))
        names.append(group.name)
        if comm.replica_rank == 1:
            wait_for(warned)
            group.barrier(timeout=LIMIT)
            return
        future = group.barrier_async()
        deadline = time.monotonic() + LIMIT
        while not warnings() and time.monotonic() < deadline:
            with pytest.raises(zcoll.CollectiveTimeoutError):
                future.result(0.1)
        warned.set()
        future.result(LIMIT)

    with Crew(2, stall_warning=0.2) as crew:
        crew.run(task)
    text = warnings()[0]
    assert f"barrier, call 1 of group {names[0]!r}" in text
    assert "missing: replica 1 (" in text

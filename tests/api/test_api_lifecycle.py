"""Before, between and after: initialize, teardown, close, and again."""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from group import LIMIT, SECRET, Crew, run_group

import zcoll
from zcoll import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def _torn_down() -> Iterator[None]:
    yield
    if zcoll.is_initialized():
        zcoll.teardown()


default_group = pytest.mark.usefixtures("_torn_down")

CALLS: dict[str, Callable[[], Any]] = {
    "allreduce": lambda: zcoll.allreduce(1),
    "allreduce_async": lambda: zcoll.allreduce_async(1),
    "broadcast": lambda: zcoll.broadcast(1),
    "barrier": zcoll.barrier,
    "replica_rank": zcoll.replica_rank,
    "num_replicas": zcoll.num_replicas,
    "world": zcoll.world,
    "teardown": zcoll.teardown,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_use_before_initialize_is_a_runtime_error(call: Callable[[], Any]) -> None:
    assert not zcoll.is_initialized()
    with pytest.raises(zcoll.NotInitializedError, match="initialize") as caught:
        call()
    assert isinstance(caught.value, RuntimeError)


@default_group
def test_initialising_twice_is_a_runtime_error() -> None:
    zcoll.initialize()
    with pytest.raises(zcoll.AlreadyInitializedError, match="teardown") as caught:
        zcoll.initialize()
    assert isinstance(caught.value, RuntimeError)
    assert zcoll.allreduce(5) == 5  # the first one works on


@default_group
def test_without_arguments_and_environment_it_is_one_replica_alone() -> None:
    zcoll.initialize()
    assert zcoll.is_initialized()
    assert (zcoll.replica_rank(), zcoll.num_replicas()) == (0, 1)
    assert zcoll.allreduce([1]) == [1]
    assert zcoll.allreduce_async("a").result(LIMIT) == "a"
    assert zcoll.broadcast({"a": 1}, root=0) == {"a": 1}
    zcoll.barrier()
    world = zcoll.world()
    assert isinstance(world, zcoll.Communicator)
    assert (world.replica_rank, world.num_replicas) == (0, 1)
    zcoll.teardown()
    assert not zcoll.is_initialized()


@default_group
def test_the_arguments_of_adaptdl_stay_positional() -> None:
    zcoll.initialize("0.0.0.0", 0, 0, 1)
    assert zcoll.num_replicas() == 1


@default_group
def test_teardown_and_initialize_again() -> None:
    for _ in range(5):
        zcoll.initialize()
        assert zcoll.allreduce(2) == 2
        zcoll.teardown()
        with pytest.raises(zcoll.NotInitializedError):
            zcoll.barrier()
        with pytest.raises(zcoll.NotInitializedError):
            zcoll.teardown()


def test_one_replica_alone_opens_nothing() -> None:
    process = psutil.Process()
    before = (process.num_fds(), threading.active_count())
    with zcoll.connect() as comm:
        assert comm.allreduce(1) == 1
        assert (process.num_fds(), threading.active_count()) == before
    assert (process.num_fds(), threading.active_count()) == before


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("secret", [None, SECRET])
def test_a_group_meets_with_and_without_a_secret(size: int, secret: str | None) -> None:
    def task(comm: zcoll.Communicator) -> tuple[int, int, int]:
        return comm.replica_rank, comm.num_replicas, comm.allreduce(1)

    results = run_group(size, task, secret=secret)
    assert results == [(rank, size, size) for rank in range(size)]


def test_groups_on_the_same_port_follow_each_other(crew: Crew) -> None:
    """The second one meets where the first one just was."""

    def task(comm: zcoll.Communicator) -> list[int]:
        results = []
        for step in range(4):
            with zcoll.connect(
                "127.0.0.1",
                first.port,
                comm.replica_rank,
                comm.num_replicas,
                timeout=LIMIT,
            ) as again:
                results.append(again.allreduce(step))
        return results

    with Crew(1) as first:  # only for its port: one replica opens none
        results = crew.run(task)
    assert results == [[step * crew.size for step in range(4)]] * crew.size


def test_several_groups_live_in_one_process(crew_of: Callable[[int], Crew]) -> None:
    with Crew(2) as other:
        for _ in range(3):
            assert crew_of(3).run(lambda comm: comm.allreduce(1)) == [3] * 3
            assert other.run(lambda comm: comm.allreduce(1)) == [2] * 2


def test_after_a_teardown_calls_say_so() -> None:
    def task(comm: zcoll.Communicator) -> None:
        comm.barrier()
        comm.teardown()
        comm.teardown()  # a second time is no error
        comm.close()
        for call in (
            lambda: comm.allreduce(1),
            lambda: comm.broadcast(1),
            comm.barrier,
            lambda: comm.allreduce_async(1).result(LIMIT),
        ):
            with pytest.raises(zcoll.ClosedError):
                call()

    run_group(2, task)


def test_results_of_before_can_be_collected_after_a_teardown() -> None:
    def task(comm: zcoll.Communicator) -> list[int]:
        with comm:
            futures = [comm.allreduce_async(step) for step in range(10)]
        return [future.result(LIMIT) for future in futures]

    assert run_group(3, task) == [[3 * step for step in range(10)]] * 3


def test_teardown_waits_for_the_others() -> None:
    order: list[str] = []

    def task(comm: zcoll.Communicator) -> None:
        if comm.replica_rank == 1:
            assert not closed.wait(0.2)
            order.append("the late one comes")
        comm.teardown()
        order.append("closed")
        closed.set()

    closed = threading.Event()
    run_group(3, task)
    assert order == ["the late one comes", "closed", "closed", "closed"]


def test_teardown_has_a_limit() -> None:
    gave_up = threading.Event()

    def task(comm: zcoll.Communicator) -> None:
        if comm.replica_rank == 0:
            with pytest.raises(zcoll.CollectiveTimeoutError) as caught:
                comm.teardown(timeout=0.1)
            assert caught.value.missing == [1]
            gave_up.set()
        else:
            assert gave_up.wait(LIMIT)

    run_group(2, task)


@pytest.mark.parametrize("leaver", [0, 1, 2])
def test_who_closes_leaves_at_once_and_the_others_are_told(leaver: int) -> None:
    def task(comm: zcoll.Communicator) -> None:
        sent = comm.allreduce_async(1)
        if comm.replica_rank == leaver:
            comm.close("enough of it")
            with pytest.raises(zcoll.ClosedError):
                comm.allreduce(1)
            return
        assert sent.result(LIMIT) == 3
        with pytest.raises(zcoll.ReplicaExitedError, match="enough of it") as caught:
            comm.barrier()
        assert (caught.value.rank, caught.value.reason) == (leaver, "enough of it")

    run_group(3, task)


def test_everything_public_can_be_imported_from_the_package() -> None:
    for name, kind in vars(errors).items():
        if inspect.isclass(kind) and issubclass(kind, zcoll.ZcollError):
            assert getattr(zcoll, name) is kind
            assert name in zcoll.__all__
    for name in zcoll.__all__:
        assert getattr(zcoll, name).__doc__
    for name in ("allreduce", "allreduce_async", "broadcast", "barrier"):
        assert hasattr(zcoll.Communicator, name)
        assert name in zcoll.__all__


def test_the_signatures_are_the_documented_ones() -> None:
    def parameters(function: Callable[..., Any]) -> str:
        signature = inspect.signature(function)
        return str(
            signature.replace(
                return_annotation=inspect.Signature.empty,
                parameters=[
                    one.replace(annotation=inspect.Parameter.empty)
                    for one in signature.parameters.values()
                ],
            )
        )

    joining = (
        "(master_addr=None, master_port=None, replica_rank=None, num_replicas=None,"
        " *, secret=None, timeout=None, bind_addr=None"
    )
    assert parameters(zcoll.initialize).startswith(joining)
    assert parameters(zcoll.connect) == parameters(zcoll.initialize)
    assert parameters(zcoll.teardown) == "(*, timeout=None)"
    assert parameters(zcoll.broadcast) == ("(value, *, root=0, timeout=None, tag='')")
    assert parameters(zcoll.barrier) == "(*, timeout=None, tag='')"
    assert list(inspect.signature(zcoll.allreduce).parameters) == [
        *("value", "reduce_fn", "timeout", "tag")
    ]
    assert list(inspect.signature(zcoll.allreduce_async).parameters) == [
        *("value", "reduce_fn", "tag")
    ]

"""Every row of docs/coming-from.md does what it says."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from coming_from import read_rows
from job import JOBS, ROOT, run_job, run_program
from ports import ipc_port
from processes.test_oracle import mpiexec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SIZE = 3
RANKS = [0, 1, 2]
SIZES = [SIZE] * 3
NOTHING = [None] * 3
SUM, FOLDED = [6] * 3, [123] * 3
ROOTS_VALUE = [2] * 3
EVERYBODYS = [[1, 2, 3]] * 3
AT_ROOT = [None, [1, 2, 3], None]
WORLD = [["group of 3", rank] for rank in RANKS]
TRUE, FALSE = [True] * 3, [False] * 3

# What each row gives to ranks 0, 1 and 2, by the table and its left column.
GIVES: dict[str, dict[str, Sequence[Any]]] = {
    "adaptdl.collective": {
        "collective.initialize(addr, port, rank, size)": NOTHING,
        "collective.allreduce(x)": SUM,
        "collective.allreduce(x, fn)": FOLDED,
        "collective.allreduce_async(x).result()": SUM,
        "collective.broadcast(x)": [1] * 3,
        "reducer.default_reduce_fn": ["a function"] * 3,
        "collective.teardown()": NOTHING,
    },
    "mpi4py": {
        "from mpi4py import MPI": NOTHING,
        "comm = MPI.COMM_WORLD": WORLD,
        "comm.Get_rank()": RANKS,
        "comm.Get_size()": SIZES,
        "comm.bcast(x, root=1)": ROOTS_VALUE,
        "comm.gather(x, root=1)": AT_ROOT,
        "comm.allgather(x)": EVERYBODYS,
        "comm.scatter(xs, root=1)": [10, 11, 12],
        "comm.alltoall(xs)": [[0, 10, 20], [1, 11, 21], [2, 12, 22]],
        "comm.reduce(x, root=1)": [None, 6, None],
        "comm.allreduce(x)": SUM,
        "comm.allreduce(x, op=fn)": FOLDED,
        "comm.allreduce(x, op=MPI.MAX)": [3] * 3,
        "comm.allreduce(x, op=MPI.MIN)": [1] * 3,
        "comm.allreduce(x, op=MPI.PROD)": [6] * 3,
        "comm.allreduce(x > 1, op=MPI.LAND)": FALSE,
        "comm.allreduce(x > 1, op=MPI.LOR)": TRUE,
        "comm.allreduce(x, op=MPI.BAND)": [0] * 3,
        "comm.allreduce(x, op=MPI.BOR)": [3] * 3,
        "comm.allreduce(x, op=MPI.BXOR)": [0] * 3,
        "comm.allreduce((x, rank), op=MPI.MAXLOC)": [[3, 2]] * 3,
        "comm.scan(x)": [1, 3, 6],
        "comm.exscan(x)": [None, 1, 3],
        "sum(comm.alltoall(xs))": [30, 33, 36],
        "comm.barrier()": NOTHING,
        "comm.Ibarrier().wait()": NOTHING,
        "comm.Split(color=rank % 2, key=-rank)": [
            *(["group of 2", 1], ["group of 1", 0], ["group of 2", 0]),
        ],
        "comm.Split(color=MPI.UNDEFINED)": NOTHING,
        "comm.Dup()": WORLD,
        "comm.Create(comm.group.Incl([2, 0]))": [
            *(["group of 2", 1], None, ["group of 2", 0]),
        ],
        "comm.Dup().Free()": NOTHING,
        "comm.Abort()": NOTHING,
        "MPI.Finalize()": NOTHING,
    },
    "torch.distributed": {
        'dist.init_process_group("gloo")': NOTHING,
        "dist.is_initialized()": TRUE,
        "dist.get_rank()": RANKS,
        "dist.get_world_size()": SIZES,
        "dist.broadcast_object_list(xs, src=1)": [[10, 11, 12]] * 3,
        "dist.all_gather_object(out, x)": EVERYBODYS,
        "dist.gather_object(x, out, dst=1)": AT_ROOT,
        "dist.scatter_object_list(out, xs, src=1)": [[10], [11], [12]],
        "nothing reduces objects": FOLDED,
        "dist.barrier()": NOTHING,
        "dist.monitored_barrier(timeout=timedelta(seconds=30))": NOTHING,
        "group = dist.new_group([0, 2])": [
            *(["group of 2", 0], None, ["group of 2", 1]),
        ],
        "dist.all_gather_object(out, x, group=group)": [[1, 3], None, [1, 3]],
        "with Join([model]):": NOTHING,
        "dist.destroy_process_group()": NOTHING,
    },
    "jax.experimental.multihost_utils": {
        "jax.distributed.initialize()": NOTHING,
        "jax.process_index()": RANKS,
        "jax.process_count()": SIZES,
        "broadcast_one_to_all(x)": [1] * 3,
        "broadcast_one_to_all(x, is_source=rank == 1)": ROOTS_VALUE,
        "process_allgather(array)": [[[0, 0], [1, -1], [2, -2]]] * 3,
        "process_allgather(array, tiled=True)": [[0, 0, 1, -1, 2, -2]] * 3,
        'sync_global_devices("epoch 3")': NOTHING,
        'assert_equal(size, "sizes differ")': NOTHING,
        "reached_preemption_sync_point(step)": TRUE,
        "jax.distributed.shutdown()": NOTHING,
    },
}


def _given(reports: dict[int, Any]) -> dict[str, dict[str, list[Any]]]:
    """What the rows have given: by table, left column and rank."""
    given: dict[str, dict[str, list[Any]]] = {}
    for rank in RANKS:
        for table, theirs, result in reports[rank]:
            given.setdefault(table, {}).setdefault(theirs, []).append(result)
    return given


def test_each_row_of_ours_gives_what_it_should(results: Path) -> None:
    with ipc_port() as port:
        environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "TEST_PORT": str(port)}
        job = "coming_from_rows.py"
        finished = run_job(job, SIZE, results, environment=environment).check()
    given = _given(finished.reports)
    assert [(row.table, row.theirs) for row in read_rows()] == [
        (table, theirs) for table, rows in given.items() for theirs in rows
    ]
    assert given == GIVES


def test_each_row_of_mpi4py_gives_the_same(results: Path) -> None:
    pytest.importorskip("mpi4py", reason="needs the extra 'oracle'")
    job = str(JOBS / "coming_from_mpi.py")
    finished = run_program(
        [mpiexec(), "-n", str(SIZE), sys.executable, job],
        results,
        {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
    ).check()
    expected = dict(GIVES["mpi4py"])
    del expected["comm.Abort()"]
    assert _given(finished.reports) == {"mpi4py": expected}

"""``loads=``: what unpickles values, on every replica."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from group import Crew, run_group

import zcoll

if TYPE_CHECKING:
    from pathlib import Path


class Calls:
    """Makes a directory where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("size", [1, 3])
def test_plain_data_and_arrays_pass(size: int) -> None:
    def task(comm: zcoll.Communicator) -> Any:
        total = comm.allreduce({"n": 1}, lambda a, b: {"n": a["n"] + b["n"]})
        array = comm.allreduce(np.ones((500, 500))[:, ::2])
        future = comm.allreduce_async(1.5)
        root = comm.broadcast(("x", None))
        comm.barrier()
        return total["n"], float(array.sum()), future.result(), root

    expected = (size, size * 125_000.0, size * 1.5, ("x", None))
    assert run_group(size, task, loads=zcoll.plain_loads) == [expected] * size


def test_an_operand_that_is_not_plain_is_everybodys_error(tmp_path: Path) -> None:
    path = tmp_path / "called"

    def task(comm: zcoll.Communicator) -> Any:
        value: Any = Calls(path) if comm.replica_rank == 1 else 1
        return comm.allreduce(value)

    with Crew(3, loads=zcoll.plain_loads) as crew:
        for error in crew.errors(zcoll.DecodeError, task):
            assert error.rank == 1
            assert "mkdir is not plain data" in str(error)
        assert crew.run(lambda comm: comm.allreduce(1)) == [3, 3, 3]
    assert not path.exists()


def test_a_result_that_is_not_plain_is_refused_where_it_arrives(
    tmp_path: Path,
) -> None:
    path = tmp_path / "called"

    def task(comm: zcoll.Communicator) -> Any:
        value: Any = Calls(path) if comm.replica_rank == 1 else None
        return comm.broadcast(value, root=1)

    with Crew(2, loads=zcoll.plain_loads) as crew:
        for error in crew.errors(zcoll.DecodeError, task):
            assert "mkdir is not plain data" in str(error)
        assert crew.run(lambda comm: comm.allreduce(1)) == [2, 2]
    assert not path.exists()


def test_functions_do_not_pass() -> None:
    def task(comm: zcoll.Communicator) -> Any:
        return comm.broadcast(lambda a, b: a)

    with Crew(2, loads=zcoll.plain_loads) as crew:
        crew.errors(zcoll.DecodeError, task)
        # Rank 0's own reduce function never travels, so it may be any.
        assert crew.run(lambda comm: comm.allreduce(2, lambda a, b: a * b)) == [4, 4]


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(zcoll.ConfigurationError, match="like pickle"):
        zcoll.connect(loads="plain")  # type: ignore[arg-type]

"""Errors whose texts are longer than a message may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from group import SECRET, Crew, run_group

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable

LONG = "\U0001f600" * 3_000_000  # twelve bytes each in JSON


def reduce_fails(comm: zcoll.Communicator) -> Any:
    def fail(a: int, b: int) -> int:
        raise ValueError(LONG)

    return comm.allreduce(1, fail)


class Stubborn:
    """Cannot be pickled, and says so at length."""

    def __reduce__(self) -> Any:
        raise ValueError(LONG)


def encoding_fails(comm: zcoll.Communicator) -> Any:
    value: Any = Stubborn() if comm.replica_rank == 1 else 1
    return comm.allreduce(value)


@pytest.mark.parametrize("secret", [None, SECRET])
@pytest.mark.parametrize("task", [reduce_fails, encoding_fails])
def test_the_middle_is_left_out_and_the_group_lives(
    task: Callable[[zcoll.Communicator], Any], secret: str | None
) -> None:
    with Crew(2, secret=secret) as crew:
        for error in crew.errors(zcoll.CollectiveError, task):
            assert "characters) ..." in str(error) + error.remote_traceback
        assert crew.run(lambda comm: comm.allreduce(1)) == [2, 2]


def test_a_long_reason_arrives_too() -> None:
    def task(comm: zcoll.Communicator) -> str:
        if comm.replica_rank == 1:
            comm.close(LONG)
            return ""
        with pytest.raises(zcoll.ReplicaExitedError) as caught:
            comm.barrier()
        return caught.value.reason

    reason, _ = run_group(2, task)
    assert "characters) ..." in reason

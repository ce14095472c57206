"""mpi4py is the oracle: the same random programs give the same on MPI and on zcoll."""

from __future__ import annotations

import re
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest
from job import ROOT, run_program
from ports import ipc_port

EACH = 50  # programs for each size of the group: 200 in all
SIZES = (2, 3, 4, 5)


def mpiexec() -> str:
    """MPI's launcher, which its wheel puts beside Python."""
    beside = Path(sysconfig.get_path("scripts")) / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        pytest.skip("there is no mpiexec: needs the extra 'oracle'")
    return found


@pytest.mark.parametrize("size", SIZES)
def test_random_programs_give_what_they_give_on_mpi(results: Path, size: int) -> None:
    pytest.importorskip("mpi4py", reason="needs the extra 'oracle'")
    with ipc_port() as port:
        finished = run_program(
            [
                *(mpiexec(), "-n", str(size), sys.executable, "-m", "programs.on_mpi"),
                *(str(EACH), str(size * EACH), str(port)),
            ],
            results,
            {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
        ).check()
    found = re.search(
        r"(\d+) programs, (\d+) results are those of MPI", finished.output
    )
    assert found is not None, finished.output
    assert int(found[1]) == EACH
    assert int(found[2]) > EACH * size  # each replica has results of its own

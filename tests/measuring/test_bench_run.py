"""The bench with real processes; what it measures is not asserted."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench.group import BrokenGroupError, Group
from bench.orders import Run
from bench.variants import VARIANTS
from job import ROOT


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tools")]))


def test_the_command_measures_what_it_is_asked_for(tmp_path: Path) -> None:
    chosen = ["zcoll-ipc", "limit", "limit-loop"]
    cells = ["allreduce/dict/2", "pipeline/int/2", "broadcast/64KB/2"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "bench", "--seconds", "0.05", "--turns", "2"),
            *("--only", *chosen, "--cells", *cells, "--output", str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    read = json.loads((tmp_path / "bench.json").read_text())
    names = [
        (f"{f['what']}/{f['payload']}/{f['replicas']}", f["variant"])
        for f in read["figures"]
    ]
    assert sorted(names) == sorted((cell, name) for cell in cells for name in chosen)
    assert all(0 < f["median"] <= f["p99"] for f in read["figures"])
    assert all(f["cpu"] > 0 and f["rounds"] > 0 for f in read["figures"])
    assert done.stdout == (tmp_path / "bench.md").read_text()


def test_a_process_that_cannot_start_is_told_with_its_last_words() -> None:
    unknown = dataclasses.replace(VARIANTS["limit"], name="nothing")
    with pytest.raises(BrokenGroupError, match="a process ended: KeyError: 'nothing'"):
        Group(unknown, 2)


def test_a_call_that_fails_breaks_its_group() -> None:
    group = Group(VARIANTS["limit"], 2)
    try:
        with pytest.raises(BrokenGroupError, match="no attribute 'alltoall'"):
            group.run(Run("alltoall", "int", 1))
    finally:
        group.close()

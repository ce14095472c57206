"""AdaptDL's own tests, unchanged, out of its wheel, run on zcoll.

The wheel comes from the package index and is kept in pytest's cache. Its modules
``collective`` and ``reducer`` are left in it: only zcoll can be what is tested.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from job import ROOT, run_program

WHEEL = "adaptdl-0.2.11-py3-none-any.whl"
SHA256 = "781790f107a4884e798b208c7219c7d4c3b42579d1f349c949c2c8626a7d2605"
NEEDED = [
    "__init__.py",
    "conftest.py",
    "env.py",
    "collective_test.py",
    "reducer_test.py",
]


@pytest.fixture
def wheel(pytestconfig: pytest.Config, tmp_path: Path) -> Path:
    """Give the wheel, downloaded once; skip where it cannot be had."""
    kept = pytestconfig.cache.mkdir("adaptdl") / WHEEL
    if not kept.exists():
        download = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"),
                *("--disable-pip-version-check", "--retries", "1"),
                *("--dest", str(tmp_path), "adaptdl==0.2.11"),
            ],
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        if download.returncode:
            why = download.stderr.strip().splitlines()[-1:]
            pytest.skip(f"the wheel of adaptdl cannot be downloaded: {why}")
        (tmp_path / WHEEL).replace(kept)
    assert hashlib.sha256(kept.read_bytes()).hexdigest() == SHA256
    return kept


@pytest.mark.parametrize(
    ("file", "tests"), [("collective_test.py", 3), ("reducer_test.py", 1)]
)
def test_the_tests_of_adaptdl_pass(
    wheel: Path, tmp_path: Path, file: str, tests: int
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in NEEDED:
            archive.extract(f"adaptdl/{name}", tmp_path)
    command = [sys.executable, "-m", "pytest", "-p", "zcoll_for_adaptdl"]
    path = [tmp_path, Path(__file__).parent, ROOT]
    finished = run_program(
        [*command, "-p", "no:cacheprovider", f"adaptdl/{file}"],
        tmp_path,
        {"PYTHONPATH": os.pathsep.join(map(str, path))},
        cwd=tmp_path,
    ).check()
    assert "AdaptDL's tests run on zcoll, <class 'zcoll_for_adaptdl.Reducer'>" in (
        finished.output
    )
    assert re.search(rf"\b{tests} passed", finished.output)

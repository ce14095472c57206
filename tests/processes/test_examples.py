"""The examples do what they say, with any number of replicas."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest
from job import ROOT, run_job

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = ROOT / "examples"


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("options", [[], ["--tcp"]], ids=["ipc", "tcp"])
def test_wordcount_counts_what_one_process_counts(
    results: Path, size: int, options: list[str]
) -> None:
    finished = run_job(EXAMPLES / "wordcount.py", size, results, options=options)
    finished.check()
    lines = finished.output.splitlines()
    assert re.match(rf"\[0\] {size} replicas? counted [\d,]+ words", lines[0])
    assert "most common: self" in lines[1]
    assert "one process counts the same" in lines[2]
    assert len(lines) == 3


def test_wordcount_fails_when_the_counts_differ(tmp_path: Path, results: Path) -> None:
    """A replica that counts one word too many is found out."""
    source = (EXAMPLES / "wordcount.py").read_text()
    honest = "words = comm.allreduce(count_words(paths[rank::num_replicas]))"
    assert honest in source
    script = tmp_path / "wordcount.py"
    script.write_text(source.replace(honest, f"{honest}; words['zcoll'] += 1"))
    finished = run_job(script, 2, results)
    assert finished.code == 1
    assert "something else" in finished.output


@pytest.mark.parametrize("size", [1, 4])
def test_training_together_is_training_alone(results: Path, size: int) -> None:
    pytest.importorskip("sklearn", reason="needs the extra 'examples'")
    finished = run_job(EXAMPLES / "train.py", size, results).check()
    found = re.findall(
        r"best at step (\d+): loss ([\d.]+), accuracy ([\d.]+)%", finished.output
    )
    assert len(found) == 2
    assert found[0] == found[1]
    assert 0 < int(found[0][0]) < 400  # training stopped by itself
    assert float(found[0][2]) > 90
    assert "agree" in finished.output


def test_training_fails_when_the_results_differ(tmp_path: Path, results: Path) -> None:
    pytest.importorskip("sklearn", reason="needs the extra 'examples'")
    script = tmp_path / "train.py"
    shutil.copy(EXAMPLES / "train.py", script)
    source = script.read_text()
    honest = "comm.allreduce(gradient(weights, training)) / total"
    assert honest in source
    script.write_text(source.replace(honest, "gradient(weights, training) / total"))
    finished = run_job(script, 2, results)
    assert finished.code == 1
    assert "DISAGREE" in finished.output


@pytest.mark.parametrize(
    ("size", "with_a_batch"),
    [
        (1, [1] * 10),
        (3, [3] * 7 + [2] * 3 + [1] * 2),
        (4, [4] * 7 + [3] * 3 + [1] * 2),
    ],
)
def test_an_uneven_epoch_ends_with_the_right_mean(
    results: Path, size: int, with_a_batch: list[int]
) -> None:
    finished = run_job(EXAMPLES / "uneven.py", size, results).check()
    found = re.findall(r"step +(\d+): (\d) with a batch", finished.output)
    steps = {int(step): int(count) for step, count in found}
    assert steps == dict(enumerate(with_a_batch, start=1))
    assert re.search(
        r"the mean of \d+ numbers is -?[\d.]+, and the same for one", finished.output
    )


def test_the_uneven_epoch_fails_when_the_means_differ(
    tmp_path: Path, results: Path
) -> None:
    source = (EXAMPLES / "uneven.py").read_text()
    honest = "ops.weighted(statistics.fmean(batch), len(batch))"
    assert honest in source
    script = tmp_path / "uneven.py"
    script.write_text(source.replace(honest, "ops.weighted(statistics.fmean(batch))"))
    finished = run_job(script, 3, results)
    assert finished.code == 1
    assert "the same" not in finished.output

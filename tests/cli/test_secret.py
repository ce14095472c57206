from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from zcoll.cli import main
from zcoll.security import Secret

if TYPE_CHECKING:
    from pathlib import Path


def test_each_one_is_fresh_and_good() -> None:
    made = {CliRunner().invoke(main, ["secret"]).output for _ in range(5)}
    assert len(made) == 5
    for text in made:
        assert len(text) == 44
        Secret.of(text.rstrip("\n"))


@pytest.mark.parametrize("umask", [0, 0o077, 0o777])
def test_a_file_is_private_and_can_be_read_back(tmp_path: Path, umask: int) -> None:
    file = tmp_path / "job.secret"
    before = os.umask(umask)
    try:
        result = CliRunner().invoke(main, ["secret", "-o", str(file)])
    finally:
        os.umask(before)
    assert (result.exit_code, result.output) == (0, "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    Secret.read(file)
    assert [path.name for path in tmp_path.iterdir()] == ["job.secret"]


def test_a_file_is_replaced_only_when_told(tmp_path: Path) -> None:
    file = tmp_path / "job.secret"
    file.write_text("the old one")
    file.chmod(0o644)
    result = CliRunner().invoke(main, ["secret", "-o", str(file)])
    assert result.exit_code == 1
    assert "is there already" in result.output
    assert file.read_text() == "the old one"
    result = CliRunner().invoke(main, ["secret", "-f", "-o", str(file)])
    assert (result.exit_code, result.output) == (0, "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    Secret.read(file)
    assert [path.name for path in tmp_path.iterdir()] == ["job.secret"]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    (tmp_path / "link").symlink_to(target)
    result = CliRunner().invoke(main, ["secret", "-o", str(tmp_path / "link")])
    assert result.exit_code == 1
    assert not target.exists()


def test_a_place_where_nothing_can_be_written(tmp_path: Path) -> None:
    file = tmp_path / "nowhere" / "secret"
    result = CliRunner().invoke(main, ["secret", "-o", str(file)])
    assert result.exit_code == 1
    assert "cannot be written: No such file" in result.output

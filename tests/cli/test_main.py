from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner
from launch import LIMIT, clean_environment

from zcoll.cli import main


def test_help_names_the_subcommands_and_imports_none() -> None:
    code = (
        "import sys; from zcoll.cli import main\n"
        "try: main(['--help'])\n"
        "finally: print([m for m in sys.modules if m.startswith('zcoll.cli.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    assert "  ping  " in done.stdout
    assert "  run   " in done.stdout
    assert "\n      zcoll run -n 4 train.py\n" in done.stdout
    assert done.stdout.endswith("[]\n")


def test_version() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0
    assert result.output.startswith("zcoll ")


def test_help_of_run_keeps_its_examples_apart() -> None:
    result = CliRunner().invoke(main, ["run", "--help"])
    assert result.exit_code == 0
    assert "Usage: main run -n N [OPTIONS] [--] SCRIPT [ARGS]...\n" in result.output
    assert "\n      zcoll run -n 4 train.py --epochs 3\n" in result.output


@pytest.mark.parametrize("word", ["walk", "-x"])
def test_wrong_usage(word: str) -> None:
    result = CliRunner().invoke(main, [word])
    assert result.exit_code == 2
    assert word in result.output

from __future__ import annotations

import pytest
from click.testing import CliRunner

from zcoll.cli import main


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "give HOST:PORT, or set ZCOLL_MASTER_ADDR"),
        (["node1"], "'node1' is not HOST:PORT"),
        ([":29500"], "':29500' is not HOST:PORT"),
        (["::1:29500"], r"as [::1]:29500"),
        (["node1:0"], "no port from 1 to 65535"),
        (["node1:99999"], "no port from 1 to 65535"),
        (["node1:²"], "no port from 1 to 65535"),
        (["http://node1:80"], "not HOST:PORT"),
        (["a b:80"], "is no name or address"),
        (["node1:80", "--count=0"], "--count"),
        (["node1:80", "--timeout=0"], "--timeout"),
        (["node1:80", "--interval=-1"], "--interval"),
        (["node1:80", "--size=1048577"], "--size"),
        (["node1:80", "--wait=-1"], "--wait"),
        (["--group", "node1:80"], "--group does not take HOST:PORT"),
        (["--group", "--reachable"], "--group does not take --reachable"),
        (["--group", "--interval=1"], "--group does not take --interval"),
    ],
)
@pytest.mark.usefixtures("no_job")
def test_wrong_usage(words: list[str], told: str) -> None:
    result = CliRunner().invoke(main, ["ping", *words])
    assert result.exit_code == 2
    assert told in result.output


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({"ZCOLL_MASTER_PORT": "many"}, "ZCOLL_MASTER_PORT='many'"),
        ({"ZCOLL_MASTER_PORT": "5000", "ZCOLL_SECRET": ""}, "ZCOLL_SECRET"),
        ({"ZCOLL_MASTER_PORT": "5000", "ZCOLL_SECRET": "short"}, "16 bytes"),
        ({"ZCOLL_MASTER_PORT": "0"}, "port is 0"),
    ],
)
@pytest.mark.usefixtures("no_job")
def test_a_wrong_environment(env: dict[str, str], told: str) -> None:
    result = CliRunner().invoke(main, ["ping"], env=env)
    assert result.exit_code == 2
    assert told in result.output


def test_help_keeps_its_table_and_examples() -> None:
    result = CliRunner().invoke(main, ["ping", "--help"])
    assert result.exit_code == 0
    assert (
        "\n  Exit code: 0  rank 0 answers and every replica is there\n" in result.output
    )
    assert "\n      zcoll ping 127.0.0.1:29500\n" in result.output

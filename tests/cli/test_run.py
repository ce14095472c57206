from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launch import (
    LIMIT,
    Launch,
    clean_environment,
    lines_of,
    zcoll_command,
)

ELSEWHERE = {"ZCOLL_MASTER_ADDR": "192.0.2.1", "ZCOLL_MASTER_PORT": "5000"}
TELL = """
    import json, os, stat, sys
    fds = {}
    for fd in range(64):
        try:
            fds[fd] = stat.S_IFMT(os.fstat(fd).st_mode)
        except OSError:
            pass
    report = os.path.dirname(os.environ["ZCOLL_RUN_REPORT"])
    print(json.dumps({
        "env": dict(os.environ), "argv": sys.argv[1:], "fds": fds, "pid": os.getpid(),
        "report": stat.filemode(os.stat(report).st_mode), "stdin": sys.stdin.read(),
    }))
"""


def tell(launch: Launch, *options: str, ranks: range, **more: Any) -> list[Any]:
    process = launch(*options, script=TELL, **more)
    output, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, errors.decode()
    assert errors == b""
    told = [json.loads(lines_of(output, rank)) for rank in ranks]
    assert len(output.splitlines()) == len(ranks)
    for rank, one in zip(ranks, told, strict=True):
        assert one["env"]["ZCOLL_REPLICA_RANK"] == str(rank)
        assert one["report"] == "drwx------"
    assert not Path(told[0]["env"]["ZCOLL_RUN_REPORT"]).parent.exists()
    return told


def sockets(one: Any) -> list[str]:
    return [fd for fd, kind in one["fds"].items() if stat.S_ISSOCK(kind)]


def test_each_replica_is_told_who_it_is_and_rank_0_gets_the_socket(
    launch: Launch,
) -> None:
    stale = {
        "ZCOLL_REPLICA_RANK": "9",
        "ZCOLL_NUM_REPLICAS": "99",
        "ZCOLL_LISTEN_FD": "7",
        "ZCOLL_BIND_ADDR": "192.0.2.1",
    }
    told = tell(launch, "-n", "3", ranks=range(3), env=stale)
    envs = [one["env"] for one in told]
    assert {env["ZCOLL_NUM_REPLICAS"] for env in envs} == {"3"}
    assert {env["ZCOLL_MASTER_ADDR"] for env in envs} == {"127.0.0.1"}
    assert len({env["ZCOLL_MASTER_PORT"] for env in envs}) == 1
    assert {env["PYTHONUNBUFFERED"] for env in envs} == {"1"}
    assert sockets(told[0]) == [envs[0]["ZCOLL_LISTEN_FD"]]
    for one in told[1:]:
        assert sockets(one) == []
        assert "ZCOLL_LISTEN_FD" not in one["env"]
    for env in envs:
        assert "ZCOLL_BIND_ADDR" not in env
        assert "ZCOLL_SECRET" not in env
    port = envs[0]["ZCOLL_MASTER_PORT"]
    left = Path(f"/tmp/zcoll-{os.geteuid()}")
    assert not list(left.glob(f"{port}*"))


@pytest.mark.parametrize("secret", [None, "a secret of the user's own"])
def test_tcp(launch: Launch, secret: str | None) -> None:
    options = ["-n", "2"] if secret else ["-n", "2", "--tcp"]
    env = {"ZCOLL_SECRET": secret} if secret else {}
    first, second = tell(launch, *options, ranks=range(2), env=env)
    assert first["env"]["ZCOLL_SECRET"] == second["env"]["ZCOLL_SECRET"]
    assert len(first["env"]["ZCOLL_SECRET"]) >= 16
    if secret:
        assert first["env"]["ZCOLL_SECRET"] == secret
    assert sockets(first) == [first["env"]["ZCOLL_LISTEN_FD"]]
    assert sockets(second) == []


@pytest.mark.parametrize("options", [(), ("--tcp",)], ids=["ipc", "tcp"])
def test_a_script_may_say_what_it_was_told(
    launch: Launch, options: tuple[str, ...]
) -> None:
    """As programs do that were written for another launcher."""
    script = """
        import os, zcoll
        addr, port = os.environ["ZCOLL_MASTER_ADDR"], os.environ["ZCOLL_MASTER_PORT"]
        rank, size = os.environ["ZCOLL_REPLICA_RANK"], os.environ["ZCOLL_NUM_REPLICAS"]
        zcoll.initialize(addr, int(port), int(rank), int(size))
        print(zcoll.allreduce(1))
        zcoll.teardown()
    """
    process = launch("-n", "2", *options, script=script)
    output, errors = process.communicate(timeout=LIMIT)
    assert (process.returncode, errors) == (0, b"")
    assert sorted(output.splitlines()) == [b"[0] 2", b"[1] 2"]


def test_part_of_a_larger_group(launch: Launch) -> None:
    told = tell(
        launch,
        *("-n", "2", "--num-replicas", "5", "--first-rank", "3"),
        ranks=range(3, 5),
        env=ELSEWHERE | {"ZCOLL_BIND_ADDR": "0.0.0.0", "PYTHONUNBUFFERED": ""},
    )
    for one in told:
        assert one["env"]["ZCOLL_NUM_REPLICAS"] == "5"
        assert one["env"].items() >= ELSEWHERE.items()
        assert one["env"]["ZCOLL_BIND_ADDR"] == "0.0.0.0"
        assert one["env"]["PYTHONUNBUFFERED"] == ""
        assert sockets(one) == []


def test_ranks_that_rank_0_gives(launch: Launch) -> None:
    process = launch(
        *("-n", "2", "--num-replicas", "1+4", "--first-rank", "auto"),
        script="""
            import os
            print(os.environ["ZCOLL_REPLICA_RANK"], os.environ["ZCOLL_NUM_REPLICAS"])
            """,
        env=ELSEWHERE,
    )
    output, errors = process.communicate(timeout=LIMIT)
    assert sorted(output.splitlines()) == [b"[auto-0] auto 5", b"[auto-1] auto 5"]
    assert (process.returncode, errors) == (0, b"")


def test_a_job_within_a_replica_is_another_job(launch: Launch, tmp_path: Path) -> None:
    outer = ELSEWHERE | {"ZCOLL_RUN_REPORT": str(tmp_path), "ZCOLL_LISTEN_FD": "5"}
    (one,) = tell(launch, "-n", "1", ranks=range(1), env=outer)
    assert one["env"]["ZCOLL_MASTER_ADDR"] == "127.0.0.1"
    assert one["env"]["ZCOLL_RUN_REPORT"] != str(tmp_path)


def test_the_script_keeps_its_own_options(launch: Launch) -> None:
    args = ("-n", "7", "--tcp", "--", "--help", "-m", "")
    told = tell(launch, "-n", "2", ranks=range(2), args=args)
    assert [one["argv"] for one in told] == [list(args)] * 2
    told = tell(launch, "-n", "1", "--", ranks=range(1), args=args)
    assert told[0]["argv"] == list(args)


def test_a_module(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import sys; print(__name__, sys.argv[1:])")
    done = subprocess.run(
        zcoll_command("run", "-n", "1", "-m", "job", "--grace", "-m"),
        env=clean_environment(),
        cwd=tmp_path,
        capture_output=True,
        timeout=LIMIT,
        check=True,
    )
    assert done.stdout == b"[0] __main__ ['--grace', '-m']\n"
    assert done.stderr == b""


def test_rank_0_has_the_standard_input(launch: Launch) -> None:
    process = launch("-n", "2", script=TELL, stdin=subprocess.PIPE)
    output, _ = process.communicate(b"some input", timeout=LIMIT)
    assert json.loads(lines_of(output, 0))["stdin"] == "some input"
    assert json.loads(lines_of(output, 1))["stdin"] == ""


@pytest.mark.parametrize(
    ("options", "env", "says"),
    [
        ([], {}, "Missing option '-n'"),
        (["-n", "0"], {}, "Invalid value for '-n'"),
        (["-n", "2", "--epochs", "3"], {}, "No such option"),
        (["-n", "2", "--first-rank", "1"], {}, "needs --num-replicas"),
        (["-n", "2", "--num-replicas", "4"], ELSEWHERE, "needs --first-rank"),
        (
            ["-n", "2", "--num-replicas", "4", "--first-rank", "3"],
            ELSEWHERE,
            "has ranks 0 to 3",
        ),
        (["-n", "3", "--num-replicas", "2"], ELSEWHERE, "has ranks 0 to 1"),
        (
            ["-n", "2", "--num-replicas", "4", "--first-rank", "2"],
            {"ZCOLL_MASTER_ADDR": "192.0.2.1"},
            "(ZCOLL_MASTER_PORT not set)",
        ),
        (
            ["-n", "2", "--num-replicas", "4", "--first-rank", "2"],
            {},
            "(ZCOLL_MASTER_ADDR and ZCOLL_MASTER_PORT not set)",
        ),
        (["-n", "2", "--first-rank", "auto"], ELSEWHERE, "needs --num-replicas"),
        (
            ["-n", "2", "--num-replicas", "2", "--first-rank", "auto"],
            ELSEWHERE,
            "no place for one beside -n 2",
        ),
        (
            ["-n", "2", "--num-replicas", "3", "--first-rank", "auto"],
            {},
            "(ZCOLL_MASTER_ADDR and ZCOLL_MASTER_PORT not set)",
        ),
        (["-n", "2", "--num-replicas", "3", "--first-rank", "x"], {}, "nor 'auto'"),
        (["-n", "2", "--num-replicas", "3", "--first-rank", "-1"], {}, "nor 'auto'"),
        (["-n", "2", "--num-replicas", "1+", "--first-rank", "0"], {}, "a sum as 1+4"),
        (["-n", "2", "--num-replicas", "0+0", "--first-rank", "0"], {}, "at least 1"),
        (["-n", "2"], {"ZCOLL_MASTER_PORT": "5"}, "ZCOLL_MASTER_ADDR is not"),
        (["-n", "2", "--tcp"], ELSEWHERE, "set ZCOLL_SECRET as well"),
    ],
)
def test_wrong_usage(
    launch: Launch, options: list[str], env: dict[str, str], says: str
) -> None:
    process = launch(*options, script="raise SystemExit('started')", env=env)
    output, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 2
    assert output == b""
    assert says in " ".join(errors.decode().split())
    assert b"started" not in errors


def test_no_such_script(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "zcoll", "run", "-n", "2", "nothing.py"],
        env=clean_environment(),
        cwd=tmp_path,
        capture_output=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 2
    assert b"there is no file 'nothing.py' to run" in done.stderr

"""Wrong arguments and environments: each error says which, and what to do."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from group import LIMIT, SECRET, Crew
from ports import ipc_port, tcp_port

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOME = "127.0.0.1"

# Arguments, and what the error must speak of.
WRONG: dict[str, tuple[tuple[Any, ...], dict[str, Any], list[str]]] = {
    "port above 65535": ((HOME, 65536, 0, 2), {}, ["65536", "port"]),
    "negative port": ((HOME, -1, 1, 2), {}, ["-1", "port"]),
    "port 0 with several replicas": ((HOME, 0, 0, 2), {}, ["port", "0"]),
    "port 0 of a replica": ((HOME, 0, 1, 2), {}, ["port", "0"]),
    "no port with several replicas": ((HOME, None, 0, 2), {}, ["ZCOLL_MASTER_PORT"]),
    "rank as large as the group": ((HOME, 5000, 2, 2), {}, ["rank", "2"]),
    "negative rank": ((HOME, 5000, -1, 2), {}, ["rank", "-1"]),
    "no replicas": ((HOME, 5000, 0, 0), {}, ["num_replicas", "0"]),
    "rank without a number of replicas": (
        (HOME, 5000, 1, None),
        {},
        ["num_replicas", "ZCOLL_NUM_REPLICAS"],
    ),
    "number of replicas without a rank": (
        (HOME, 5000, None, 3),
        {},
        ["replica_rank", "ZCOLL_REPLICA_RANK"],
    ),
    "name without a secret": (("rank0.example", 5000, 0, 2), {}, ["ZCOLL_SECRET"]),
    "name of a replica": (("rank0.example", 5000, 1, 2), {}, ["ZCOLL_SECRET"]),
    "foreign address without a secret": (("10.1.2.3", 5000, 1, 2), {}, ["10.1.2.3"]),
    "empty secret": ((HOME, 5000, 0, 2), {"secret": ""}, ["secret", "empty"]),
    "short secret": ((HOME, 5000, 0, 2), {"secret": "tooshort"}, ["secret", "16"]),
    "negative timeout": ((HOME, 5000, 0, 2), {"timeout": -1}, ["timeout", "-1"]),
}


@pytest.mark.parametrize(("where", "options", "words"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_are_refused_at_once(
    where: tuple[Any, ...], options: dict[str, Any], words: list[str]
) -> None:
    begin = time.monotonic()
    with pytest.raises(zcoll.ConfigurationError) as caught:
        zcoll.connect(*where, **options)
    assert time.monotonic() - begin < 5
    assert isinstance(caught.value, ValueError)
    for word in words:
        assert word in str(caught.value)
    assert "tooshort" not in str(caught.value)


FULL = {
    "ZCOLL_MASTER_ADDR": HOME,
    "ZCOLL_MASTER_PORT": "5000",
    "ZCOLL_REPLICA_RANK": "0",
    "ZCOLL_NUM_REPLICAS": "2",
}
# Changes to a full environment (None: not set), and what the error must name.
BAD_ENVIRONMENTS: dict[str, tuple[dict[str, str | None], str]] = {
    "no rank": ({"ZCOLL_REPLICA_RANK": None}, "ZCOLL_REPLICA_RANK"),
    "no number": (
        {"ZCOLL_NUM_REPLICAS": None, "ZCOLL_REPLICA_RANK": "1"},
        "ZCOLL_NUM_REPLICAS",
    ),
    "no port": ({"ZCOLL_MASTER_PORT": None}, "ZCOLL_MASTER_PORT"),
    "port is a word": ({"ZCOLL_MASTER_PORT": "http"}, "ZCOLL_MASTER_PORT"),
    "port too large": ({"ZCOLL_MASTER_PORT": "70000"}, "70000"),
    "empty port": ({"ZCOLL_MASTER_PORT": ""}, "ZCOLL_MASTER_PORT"),
    "rank is a fraction": ({"ZCOLL_REPLICA_RANK": "1.5"}, "ZCOLL_REPLICA_RANK"),
    "rank too large": ({"ZCOLL_REPLICA_RANK": "2"}, "rank"),
    "number is a word": ({"ZCOLL_NUM_REPLICAS": "two"}, "ZCOLL_NUM_REPLICAS"),
    "empty secret": ({"ZCOLL_SECRET": ""}, "ZCOLL_SECRET"),
    "short secret": ({"ZCOLL_SECRET": "abc"}, "16"),
    "no secret file": ({"ZCOLL_SECRET_FILE": "/nowhere/secret"}, "/nowhere/secret"),
    "timeout is a word": ({"ZCOLL_TIMEOUT": "soon"}, "ZCOLL_TIMEOUT"),
    "adaptdl: no rank": (
        {
            **dict.fromkeys(FULL),
            "ADAPTDL_NUM_REPLICAS": "2",
            "ADAPTDL_MASTER_PORT": "5000",
        },
        "REPLICA_RANK",
    ),
    "adaptdl: rank is a word": (
        {
            **dict.fromkeys(FULL),
            "ADAPTDL_NUM_REPLICAS": "2",
            "ADAPTDL_REPLICA_RANK": "one",
        },
        "ADAPTDL_REPLICA_RANK",
    ),
}


@pytest.mark.parametrize(
    ("changes", "word"), BAD_ENVIRONMENTS.values(), ids=BAD_ENVIRONMENTS
)
def test_a_wrong_environment_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, str | None], word: str
) -> None:
    for name, value in {**FULL, **changes}.items():
        if value is not None:
            monkeypatch.setenv(name, value)
    begin = time.monotonic()
    with pytest.raises(zcoll.ConfigurationError) as caught:
        zcoll.connect()
    assert time.monotonic() - begin < 5
    assert word in str(caught.value)


def test_an_empty_secret_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secret"
    path.write_text("\n")
    monkeypatch.setenv("ZCOLL_SECRET_FILE", str(path))
    with pytest.raises(zcoll.ConfigurationError, match="empty"):
        zcoll.connect(HOME, 5000, 0, 2)


def test_a_secret_comes_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secret"
    path.write_text(SECRET + "\n")
    monkeypatch.setenv("ZCOLL_SECRET_FILE", str(path))
    port = tcp_port()

    def come(rank: int, secret: str | None) -> int:
        with zcoll.connect(HOME, port, rank, 2, secret=secret, timeout=LIMIT) as comm:
            return comm.allreduce(1)

    # One reads the file, and the other one is told what is in it.
    assert together(lambda: come(0, None), lambda: come(1, SECRET)) == [2, 2]


@pytest.mark.parametrize(
    "names", [("ZCOLL_", "ADAPTDL_"), ("ZCOLL_",), ("ADAPTDL_",)], ids=str
)
def test_the_environment_is_read_with_the_names_of_zcoll_first(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    for prefix in names:
        # Where both are set, these are for one replica alone: they must not count.
        shadowed = prefix == "ADAPTDL_" and len(names) == 2
        monkeypatch.setenv(f"{prefix}MASTER_ADDR", HOME)
        monkeypatch.setenv(f"{prefix}NUM_REPLICAS", "1" if shadowed else "2")
        monkeypatch.setenv(f"{prefix}MASTER_PORT", "1" if shadowed else "70000")
    with pytest.raises(zcoll.ConfigurationError, match="70000"):
        zcoll.connect(replica_rank=1)


def test_arguments_come_before_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in FULL.items():
        monkeypatch.setenv(name, value)
    with zcoll.connect(replica_rank=0, num_replicas=1) as comm:
        assert comm.allreduce(3) == 3
    with pytest.raises(zcoll.ConfigurationError, match="65537"):
        zcoll.connect(master_port=65537)


def together(*functions: Callable[[], Any]) -> list[Any]:
    """Run functions at the same time, and return their results."""
    with ThreadPoolExecutor(len(functions)) as pool:
        futures = [pool.submit(function) for function in functions]
        return [future.result(2 * LIMIT) for future in futures]


@contextlib.contextmanager
def gathering(port: int, size: int = 2, **options: Any) -> Any:
    """Let a rank 0 wait for its group; the last replica comes at the end."""
    joined: list[int] = []

    def gather() -> None:
        with zcoll.connect(HOME, port, 0, size, timeout=LIMIT, **options) as comm:
            joined.append(comm.allreduce(1))

    thread = threading.Thread(target=gather, daemon=True)
    thread.start()
    yield
    with zcoll.connect(HOME, port, size - 1, size, timeout=LIMIT, **options) as comm:
        assert comm.allreduce(1) == size
    thread.join(LIMIT)
    assert joined == [size]  # rank 0 was not disturbed


def test_replicas_that_disagree_on_num_replicas_are_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        caplog.at_level(logging.WARNING, logger="zcoll"),
        ipc_port() as port,
        gathering(port),
        pytest.raises(zcoll.RejectedError) as caught,
    ):
        zcoll.connect(HOME, port, 1, 3, timeout=LIMIT)
    for number in "2", "3":
        assert number in caught.value.reason
    assert "num_replicas" in caught.value.reason
    assert any("num_replicas" in record.getMessage() for record in caplog.records)


def test_a_rank_that_is_taken_is_refused() -> None:
    with Crew(2) as crew:
        with pytest.raises(zcoll.RejectedError, match="rank 1") as caught:
            zcoll.connect(HOME, crew.port, 1, 2, timeout=LIMIT)
        assert "rank 1" in caught.value.reason
        assert crew.run(lambda comm: comm.allreduce(1)) == [2, 2]


@pytest.mark.parametrize("secret", [None, SECRET])
def test_a_second_rank_0_finds_the_port_in_use(secret: str | None) -> None:
    with Crew(2, secret=secret) as crew:
        with pytest.raises(zcoll.ConfigurationError, match="in use") as caught:
            zcoll.connect(HOME, crew.port, 0, 2, timeout=LIMIT, secret=secret)
        assert str(crew.port) in str(caught.value)
        assert crew.run(lambda comm: comm.allreduce(1)) == [2, 2]


def test_a_port_that_another_program_uses_is_an_error() -> None:
    with socket.create_server((HOME, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(zcoll.ConfigurationError, match="in use") as caught:
            zcoll.connect(HOME, port, 0, 2, timeout=LIMIT, secret=SECRET)
        assert str(port) in str(caught.value)


def test_a_wrong_secret_is_told() -> None:
    port = tcp_port()
    with gathering(port, secret=SECRET):
        with pytest.raises(zcoll.AuthenticationError) as caught:
            zcoll.connect(HOME, port, 1, 2, timeout=LIMIT, secret="x" * 20)
        assert "secret" in str(caught.value)
        assert "x" * 20 not in str(caught.value)


@pytest.mark.parametrize("who", ["rank 0", "the replica"])
def test_a_secret_on_one_side_only_is_told(who: str) -> None:
    port = tcp_port()
    theirs, mine = (SECRET, None) if who == "rank 0" else (None, SECRET)
    with gathering(port, secret=theirs):
        with pytest.raises(zcoll.RendezvousError) as caught:
            zcoll.connect(HOME, port, 1, 2, timeout=8, secret=mine)
        assert "secret" in str(caught.value)


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "0.0.0.0", "::1"])
def test_addresses_of_this_host_need_no_secret(address: str) -> None:
    def come(rank: int) -> int:
        with zcoll.connect(address, port, rank, 2, timeout=LIMIT) as comm:
            return comm.allreduce(1)

    with ipc_port() as port:
        assert together(lambda: come(0), lambda: come(1)) == [2, 2]


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "0.0.0.0", "::1"])
def test_addresses_of_this_host_work_with_a_secret(address: str) -> None:
    if address == "::1":
        try:
            socket.create_server((address, 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("this host has no IPv6")
    port = tcp_port()

    def come(rank: int) -> int:
        with zcoll.connect(
            address, port, rank, 2, timeout=LIMIT, secret=SECRET
        ) as comm:
            return comm.allreduce(1)

    assert together(lambda: come(0), lambda: come(1)) == [2, 2]

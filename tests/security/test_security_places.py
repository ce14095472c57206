"""S3, S4, S5, S7: where a group listens, for whom, and with which secrets."""

from __future__ import annotations

import functools
import hashlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import zmq
from group import LIMIT, SECRET, Replica
from job import clean_environment
from ports import ipc_port, tcp_port
from security.canary import Canary
from security.insider import HOME, finish, insider
from zmq.utils import z85

import zcoll
from zcoll.security import MINIMUM, Secret
from zcoll.transport import ipc
from zcoll.wire import Kind, Message

if TYPE_CHECKING:
    from collections.abc import Callable

LISTENS = "0A"  # TCP_LISTEN
linux_only = pytest.mark.skipif(
    not Path("/proc/net/tcp").exists(), reason="/proc/net/tcp tells who listens"
)


def listeners() -> set[str]:
    """The TCP ports at which this process listens, as ``ADDRESS:PORT`` in hex."""
    mine = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            mine.add(os.readlink(entry))
        except OSError:
            continue
    found = set()
    for table in "/proc/net/tcp", "/proc/net/tcp6":
        if Path(table).exists():
            for line in Path(table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == LISTENS and f"socket:[{words[9]}]" in mine:
                    found.add(words[1])
    return found


def hex_port(port: int) -> str:
    return f"{port:04X}"


@linux_only
@pytest.mark.parametrize(
    "address", ["0.0.0.0", "*", "::", "127.0.0.1", "localhost", "::1"]
)
def test_s03_without_a_secret_nothing_listens_on_tcp(address: str) -> None:
    before = listeners()
    with ipc_port() as port:
        connect = functools.partial(zcoll.connect, address, port, timeout=LIMIT)
        rank_0 = Replica(0, lambda: connect(0, 2))
        with insider(port, None) as other:
            other.send(Message(Kind.PING))
            other.expect(Kind.PONG)  # it is up
        assert listeners() == before
        finish(rank_0, Replica(1, lambda: connect(1, 2)))


@linux_only
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    "address", ["10.1.2.3", "192.0.2.1", "fe80::1", socket.gethostname(), "rank0.test"]
)
def test_s03_without_a_secret_other_addresses_are_refused(
    address: str, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(*_: object, **__: object) -> None:
        raise AssertionError("nothing is to be resolved")

    if address != "localhost":
        monkeypatch.setattr(socket, "getaddrinfo", resolve)
    before = listeners()
    with pytest.raises(ValueError, match="ZCOLL_SECRET"):
        zcoll.connect(address, tcp_port(), rank, 2)
    with pytest.raises(ValueError, match="ZCOLL_SECRET"):
        zcoll.connect(HOME, tcp_port(), 0, 2, bind_addr=address)
    assert listeners() == before


@linux_only
def test_s03_with_a_secret_only_the_address_asked_for_is_open() -> None:
    before = listeners()
    port = tcp_port()
    connect = functools.partial(zcoll.connect, HOME, port, timeout=LIMIT, secret=SECRET)
    rank_0 = Replica(0, lambda: connect(0, 2))
    with insider(port, SECRET) as other:
        other.send(Message(Kind.PING))
        other.expect(Kind.PONG)
    assert listeners() - before == {f"0100007F:{hex_port(port)}"}
    finish(rank_0, Replica(1, lambda: connect(1, 2)))


INTRUDER = """
import os, socket, sys
from security.canary import Canary, battery
from security.insider import Insider
import zcoll, pathlib, encodings.idna, zcoll.cli.ping
import zcoll.engine.opening, zcoll.engine.waiting  # which the other user cannot read
port, canary, path = int(sys.argv[1]), sys.argv[2], sys.argv[3]
os.setgroups([]); os.setgid(65534); os.setuid(65534)
def attempt(name, job):
    try:
        job()
    except OSError as error:
        print(name, type(error).__name__)
    else:
        print(name, "works")
def connect():
    socket.socket(socket.AF_UNIX).connect(path)
attempt("connect", connect)
attempt("list", lambda: os.listdir(os.path.dirname(path)))
attempt("remove", lambda: os.unlink(path))
attempt("rename", lambda: os.rename(os.path.dirname(path), "/tmp/zcoll-stolen"))
try:
    zcoll.connect("127.0.0.1", port, 1, 2, timeout=1)
except zcoll.RendezvousTimeoutError as error:
    print("join", error.missing)
one = Insider(port, None)
one._dealer.socket.connect("ipc://" + path)
for frames in battery(Canary(pathlib.Path(canary)).stream):
    try:
        one.send_frames(frames, 0.1)
        print("was heard")
    except AssertionError:
        pass
one.close()
own = pathlib.Path(f"/tmp/zcoll-{os.getuid()}")
if own.exists() and not os.listdir(own):
    own.rmdir()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_s04_another_user_of_this_host_stays_outside(tmp_path: Path) -> None:
    canary = Canary(tmp_path / "canary")
    with ipc_port() as port:
        connect = functools.partial(zcoll.connect, HOME, port, timeout=LIMIT)
        rank_0 = Replica(0, lambda: connect(0, 2))
        with insider(port, None) as other:
            other.send(Message(Kind.PING))
            other.expect(Kind.PONG)
        environment = clean_environment()
        environment["PYTHONPATH"] += os.pathsep + str(Path(__file__).parent.parent)
        done = subprocess.run(
            [
                *(sys.executable, "-c", INTRUDER, str(port)),
                *(str(tmp_path / "canary"), str(ipc.path_of(port))),
            ],
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.stderr == ""
        assert done.stdout.splitlines() == [
            "connect PermissionError",
            "list PermissionError",
            "remove PermissionError",
            "rename PermissionError",
            "join [0]",
        ]
        finish(rank_0, Replica(1, lambda: connect(1, 2)))
    assert not canary.has_fired


def test_s04_paths_fit_into_a_socket_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the largest user id and the longest name of a file."""
    monkeypatch.setattr(os, "geteuid", lambda: 2**32 - 1)
    assert len(os.fsencode(ipc.path_of(65535))) <= 107
    assert len(os.fsencode(ipc.path_of(65535).with_suffix(".lock"))) <= 107


def no_curve(monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    monkeypatch.setattr(zmq, "has", lambda _: False)
    monkeypatch.setenv("ZCOLL_SECRET", "a secret whose keys nobody has derived")


def old_libzmq(monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    monkeypatch.setattr(zmq, "zmq_version_info", lambda: (4, 3, 2))
    monkeypatch.setenv("ZCOLL_SECRET", SECRET)


def unreadable(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setenv("ZCOLL_SECRET_FILE", str(path / "nothing"))


def empty_file(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    (path / "empty").write_text("\n")
    monkeypatch.setenv("ZCOLL_SECRET_FILE", str(path / "empty"))


def set_to(value: str) -> Callable[[pytest.MonkeyPatch, Path], None]:
    return lambda monkeypatch, _: monkeypatch.setenv("ZCOLL_SECRET", value)


BAD = {
    "empty": set_to(""),
    "five characters": set_to("abcde"),
    "no file": unreadable,
    "empty file": empty_file,
    "no CURVE": no_curve,
    "old libzmq": old_libzmq,
}


@linux_only
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("spoil", BAD.values(), ids=BAD)
def test_s05_a_bad_secret_is_never_no_secret(
    spoil: Callable[[pytest.MonkeyPatch, Path], None],
    rank: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    before = listeners()
    port = tcp_port()
    spoil(monkeypatch, tmp_path)
    with pytest.raises(zcoll.ConfigurationError):
        zcoll.connect(HOME, port, rank, 2, timeout=1)
    assert listeners() == before
    assert not ipc.path_of(port).exists()


def test_s07_secrets_are_long_and_slow_to_guess() -> None:
    for size in range(MINIMUM):
        with pytest.raises(zcoll.ConfigurationError, match="at least 16 bytes"):
            Secret.of(b"x" * size)
    # The same once more, from the standard library alone: nobody may change it.
    master = hashlib.scrypt(
        SECRET.encode(), salt=b"zcoll 1 CURVE", n=2**14, r=8, p=1, dklen=32
    )
    keys = Secret.of(SECRET).keys()
    for role in "server", "client":
        key = hashlib.blake2b(role.encode(), key=master, digest_size=32).digest()
        assert getattr(keys, f"{role}_secret") == z85.encode(key)
        public = zmq.curve_public(z85.encode(key))
        assert getattr(keys, f"{role}_public") == public
    assert keys.server_public == b"1KF/Hp<WEK/jdpl*cP2]RWlE>Ajb%C!@g3@H*42d"

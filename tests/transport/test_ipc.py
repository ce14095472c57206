from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from zcoll.errors import ConfigurationError, SecurityError
from zcoll.transport import ipc
from zcoll.transport.ipc import Claim, InUseError, path_of, socket_path

PORT = 50000
PREAMBLE = """
import os, pathlib, sys, time
from zcoll.transport import ipc
ipc.ROOT = pathlib.Path(sys.argv[1])
"""


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of the test's own; pytest's may be too long for a socket."""
    path = Path(tempfile.mkdtemp(prefix="zcoll-test-"))
    monkeypatch.setattr(ipc, "ROOT", path)
    yield path
    shutil.rmtree(path)


def start(root: Path, script: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + script, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=10)


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob("*") if not path.is_dir())


def test_the_path_is_fixed() -> None:
    assert path_of(5) == ipc.ROOT / f"zcoll-{os.geteuid()}" / "5"


def test_a_missing_directory_is_no_error_for_who_looks(root: Path) -> None:
    assert socket_path(5, create=False) == path_of(5)
    assert list(root.iterdir()) == []


def test_the_directory_is_private(root: Path) -> None:
    before = os.umask(0)
    try:
        assert socket_path(5, create=True) == path_of(5)
    finally:
        os.umask(before)
    found = path_of(5).parent.lstat()
    assert stat.S_IMODE(found.st_mode) == 0o700
    assert found.st_uid == os.geteuid()
    assert socket_path(6, create=True) == path_of(6)
    assert socket_path(6, create=False) == path_of(6)


def test_a_place_where_no_directory_can_be_made(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ipc, "ROOT", root / "missing")
    with pytest.raises(ConfigurationError, match=r"missing.*ZCOLL_SECRET"):
        Claim(PORT)
    assert socket_path(PORT, create=False) == path_of(PORT)


def untrusted(kind: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = path_of(5).parent
    if kind == "open":
        directory.mkdir()
        directory.chmod(0o755)
    elif kind == "file":
        directory.write_text("")
    elif kind == "symlink":
        (root / "elsewhere").mkdir(mode=0o700)
        directory.symlink_to(root / "elsewhere")
    elif kind == "dangling":
        directory.symlink_to(root / "nowhere")
    else:
        stranger = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: stranger)
        path_of(5).parent.mkdir(mode=0o700)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("open", "has mode 0755, not 0700"),
        ("file", "is no directory"),
        ("symlink", "is no directory"),
        ("dangling", "is no directory"),
        ("foreign", "belongs to user"),
    ],
)
def test_untrusted_directories(
    kind: str, text: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    untrusted(kind, root, monkeypatch)
    for create in (False, True):
        with pytest.raises(SecurityError, match=text):
            socket_path(5, create=create)
    with pytest.raises(SecurityError, match=text):
        Claim(5)
    assert not (root / "nowhere").exists()


def test_one_claim_at_a_time(root: Path) -> None:
    first = Claim(PORT)
    assert (first.port, first.path) == (PORT, path_of(PORT))
    with pytest.raises(InUseError) as caught:
        Claim(PORT)
    assert isinstance(caught.value, ConfigurationError)
    assert "port 50000 is in use by another group" in str(caught.value)
    assert str(path_of(PORT)) in str(caught.value)
    other = Claim(PORT + 1)
    other.release()
    first.release()
    first.release()
    assert names(root) == []
    second = Claim(PORT)
    first.release()
    assert names(root) == [f"{PORT}.lock"]
    second.release()
    assert names(root) == []


def test_listening(root: Path) -> None:
    claim = Claim(PORT)
    with claim.listen() as listener:
        assert not listener.get_inheritable()
        assert names(root) == [str(PORT), f"{PORT}.lock"]
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(claim.path))
            with listener.accept()[0] as served:
                served.sendall(b"x")
            assert client.recv(1) == b"x"
        with pytest.raises(OSError, match="in use"):
            claim.listen()
        claim.release()
    assert names(root) == []


def test_a_file_that_was_removed_already(root: Path) -> None:
    claim = Claim(PORT)
    claim.listen().close()
    shutil.rmtree(claim.path.parent)
    claim.release()
    assert names(root) == []


def test_the_dead_leave_no_claim(root: Path) -> None:
    script = "c = ipc.Claim(50000); s = c.listen(); print('held', flush=True); input()"
    process = start(root, script)
    try:
        assert line(process) == "held"
        with pytest.raises(InUseError):
            Claim(PORT)
    finally:
        end(process)
    assert names(root) == [str(PORT), f"{PORT}.lock"]
    claim = Claim(PORT)
    assert names(root) == [f"{PORT}.lock"]
    claim.listen().close()
    claim.release()


@pytest.mark.parametrize("full", [False, True])
def test_a_living_socket_is_not_taken_over_without_its_lock(
    root: Path, full: bool
) -> None:
    path = socket_path(PORT, create=True)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as c:
        listener.bind(str(path))
        listener.listen(0)
        if full:
            c.connect(str(path))
        with pytest.raises(InUseError):
            Claim(PORT)
        assert names(root) == [str(PORT)]
    Claim(PORT).release()


def test_a_lock_on_a_removed_file_is_no_lock(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one releases between our open and our lock."""
    real = fcntl.flock
    lock_path = socket_path(PORT, create=True).with_name(f"{PORT}.lock")
    rounds = []

    def flock(fd: int, how: int) -> None:
        rounds.append(fd)
        if len(rounds) == 1:
            lock_path.unlink()
        elif len(rounds) == 2:
            lock_path.unlink()
            lock_path.write_text("another's")
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    claim = Claim(PORT)
    assert len(rounds) == 3
    with pytest.raises(InUseError):
        Claim(PORT)
    claim.release()
    assert names(root) == []


def test_many_claimants(root: Path) -> None:
    held = threading.Lock()
    won = []

    def compete() -> None:
        for _ in range(200):
            try:
                claim = Claim(PORT)
            except InUseError:
                continue
            assert held.acquire(blocking=False)
            won.append(claim)
            held.release()
            claim.release()

    errors: list[threading.ExceptHookArgs] = []
    hook, threading.excepthook = threading.excepthook, errors.append
    try:
        threads = [threading.Thread(target=compete) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    finally:
        threading.excepthook = hook
    assert errors == []
    assert won
    assert names(root) == []


def test_a_symlink_is_no_lock(root: Path) -> None:
    lock_path = socket_path(PORT, create=True).with_name(f"{PORT}.lock")
    lock_path.symlink_to(root / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        Claim(PORT)
    assert not (root / "elsewhere").exists()


def test_a_forked_child_has_no_claim(root: Path) -> None:
    script = """
claim = ipc.Claim(50000)
child = os.fork()
if child == 0:
    claim.release()
    print(os.getpid(), flush=True)
    time.sleep(60)
    os._exit(0)
input()
"""
    process = start(root, script)
    child = 0
    try:
        child = int(line(process))
        assert names(root) == [f"{PORT}.lock"]
        with pytest.raises(InUseError):
            Claim(PORT)
        process.kill()
        process.wait(10)
        os.kill(child, 0)
        Claim(PORT).release()
    finally:
        if child:
            os.kill(child, signal.SIGKILL)
        end(process)


def test_reserving_removes_what_the_dead_have_left(root: Path) -> None:
    living = Claim(PORT)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(living.path.with_name("50001")))
    living.path.with_name("50001.lock").touch(mode=0o600)
    living.path.with_name("50002.lock").touch(mode=0o600)
    reserved = Claim.reserve()
    assert names(root) == sorted([f"{PORT}.lock", f"{reserved.port}.lock"])
    reserved.release()
    living.release()


def test_reserving(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = iter([0, 0, 0, 16383])
    monkeypatch.setattr(secrets, "randbelow", lambda _: next(draws))
    first = Claim.reserve()
    second = Claim.reserve()
    assert (first.port, second.port) == (49152, 65535)
    monkeypatch.setattr(secrets, "randbelow", lambda _: 0)
    with pytest.raises(ConfigurationError, match="no free port"):
        Claim.reserve()
    first.release()
    second.release()
    assert names(root) == []

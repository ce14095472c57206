from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import platform
import resource
import signal
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from zcoll.engine.bell import Bell
from zcoll.transport.lane import segment as segments
from zcoll.transport.lane.bell import Ringer, bell_ticket
from zcoll.transport.lane.segment import (
    Segment,
    Ticket,
    UnavailableError,
    check_machine,
)

SIZE = 1024 * 1024


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = descriptors()
    yield
    assert descriptors() == before


@pytest.fixture
def made() -> Iterator[Segment]:
    segment = Segment.create(SIZE)
    with contextlib.closing(segment):
        yield segment


def test_both_sides_see_the_same_memory(made: Segment) -> None:
    with contextlib.closing(Segment.open(made.ticket)) as opened:
        assert made.reserve(4096, 4096)
        opened.memory[5000:5003] = b"abc"
        assert bytes(made.memory[5000:5003]) == b"abc"


def test_it_can_be_opened_for_reading_only(made: Segment) -> None:
    with contextlib.closing(Segment.open(made.ticket, writable=False)) as opened:
        made.memory[100:103] = b"abc"
        assert bytes(opened.memory[100:103]) == b"abc"
        with pytest.raises(TypeError, match="read-only"):
            opened.memory[100] = 1


def test_a_claim_holds_until_the_memory_is_closed(made: Segment) -> None:
    one = Segment.open(made.ticket, writable=False)
    other = Segment.open(made.ticket, writable=False)
    for number, segment in enumerate((one, other), start=1):
        segment.claim(number)
        assert made.is_claimed(number)
    assert not made.is_claimed(3)
    one.close()
    assert [made.is_claimed(number) for number in (1, 2)] == [False, True]
    other.close()
    assert not made.is_claimed(2)


def test_a_claim_ends_with_its_process(made: Segment) -> None:
    ticket = made.ticket
    told, telling = os.pipe()
    child = os.fork()
    if child == 0:
        opened = Segment.open(ticket, writable=False)
        opened.claim(1)
        os.write(telling, b"x")
        signal.pause()
    assert os.read(told, 1)
    assert made.is_claimed(1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert not made.is_claimed(1)
    os.close(told)
    os.close(telling)


def test_a_system_without_such_locks(
    made: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bytes:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    with pytest.raises(UnavailableError, match="cannot be locked: Invalid"):
        made.claim(1)
    assert made.is_claimed(1)


def test_it_has_no_name(made: Segment) -> None:
    name = os.readlink(f"/proc/self/fd/{made.ticket.descriptor}")
    assert name == "/memfd:zcoll (deleted)"


def test_only_its_user_can_open_it(made: Segment) -> None:
    descriptor = made.ticket.descriptor
    assert os.fstat(descriptor).st_mode & 0o777 == 0o600
    assert not os.get_inheritable(descriptor)


def test_memory_is_used_as_far_as_it_is_reserved_only(made: Segment) -> None:
    assert made.reserved == mmap.PAGESIZE
    assert made.reserve(8192, 65536)
    assert made.reserved == mmap.PAGESIZE + 65536
    made.memory[8192:9000] = bytes(808)
    made.release(8192, 65536)
    assert made.reserved == mmap.PAGESIZE
    assert made.memory[8192] == 0


def test_files_that_may_not_be_so_large() -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
    try:
        with pytest.raises(UnavailableError, match="no shared memory: File too large"):
            Segment.create(SIZE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_machine(made: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, start: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    assert not made.reserve(4096, 65536)
    with pytest.raises(UnavailableError, match="no room"):
        Segment.create(SIZE)


def test_no_descriptors_are_left(made: Segment) -> None:
    ticket = made.ticket
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    null = [os.open(os.devnull, os.O_RDONLY)]
    while null[-1] <= highest:
        null.append(os.open(os.devnull, os.O_RDONLY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (null[-1] + 1, limits[1]))
    try:
        with pytest.raises(UnavailableError, match="Too many open files"):
            Segment.create(SIZE)
        with pytest.raises(UnavailableError, match="Too many open files"):
            Segment.open(ticket)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in null:
            os.close(descriptor)


def test_nobody_can_cut_it_off(made: Segment) -> None:
    with pytest.raises(PermissionError):
        os.ftruncate(made.ticket.descriptor, 4096)


def test_memory_that_could_be_cut_off_is_refused(made: Segment) -> None:
    """Reading behind its end would be a SIGBUS."""
    descriptor = os.memfd_create("loose", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, SIZE)
    with pytest.raises(UnavailableError, match="could be cut off"):
        Segment.open(replace(made.ticket, descriptor=descriptor))
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    with pytest.raises(UnavailableError, match="another's"):
        Segment.open(replace(made.ticket, descriptor=descriptor))  # no token there
    os.close(descriptor)


def test_a_file_is_no_segment(made: Segment, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(SIZE))
    descriptor = os.open(file, os.O_RDWR)
    with pytest.raises(UnavailableError, match="could be cut off"):
        Segment.open(replace(made.ticket, descriptor=descriptor))
    os.close(descriptor)


def test_a_device_is_no_segment(made: Segment) -> None:
    descriptor = os.open(os.devnull, os.O_RDWR)
    with pytest.raises(UnavailableError, match="another's"):
        Segment.open(replace(made.ticket, descriptor=descriptor))
    os.close(descriptor)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"boot": "another"}, "another host"),
        ({"token": "00" * 32}, "another's"),
        ({"size": 2 * SIZE}, "another's"),
        ({"descriptor": 1_000_000}, "No such file"),
        ({"pid": 2**30}, "No such file"),
    ],
)
def test_a_ticket_for_something_else(
    made: Segment, changes: dict[str, object], why: str
) -> None:
    with pytest.raises(UnavailableError, match=why):
        Segment.open(replace(made.ticket, **changes))  # type: ignore[arg-type]


def test_another_user(made: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    with pytest.raises(UnavailableError, match=rf"another user \(uid {uid}\)"):
        Segment.open(made.ticket)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_another_user_may_not_look(made: Segment) -> None:
    """Also when it knows everything that is on the ticket."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setresuid(12345, 12345, 12345)
        try:
            Segment.open(made.ticket)
        except UnavailableError as error:
            os.write(writing, str(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert b"Permission denied" in os.read(reading, 1000)
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize(
    "fields",
    [None, [], {}, {"boot": "x"}, "x", 3],
)
def test_fields_that_are_no_ticket(fields: object) -> None:
    with pytest.raises(UnavailableError, match="makes no sense"):
        Ticket.read(fields)


def test_fields_of_another_type(made: Segment) -> None:
    fields = asdict(made.ticket)
    assert Ticket.read(fields) == made.ticket
    for name, value in fields.items():
        other: object = 7 if isinstance(value, str) else "7"
        with pytest.raises(UnavailableError, match="makes no sense"):
            Ticket.read({**fields, name: other})


@pytest.mark.parametrize("machine", ["aarch64", "arm64", "riscv64", "ppc64le"])
def test_machines_whose_memory_order_is_another(
    machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(UnavailableError, match=machine):
        check_machine()
    with pytest.raises(UnavailableError, match=machine):
        Segment.create(SIZE)


def test_systems_without_memfd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(UnavailableError, match="without a name"):
        Segment.create(SIZE)


def test_systems_without_a_boot_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Segment
) -> None:
    monkeypatch.setattr(segments, "_BOOT_ID", tmp_path / "none")
    with pytest.raises(UnavailableError, match="boot id cannot be read"):
        _ = made.ticket


def test_a_bell() -> None:
    bell = Bell()
    ringer = Ringer(bell_ticket(bell.fd))
    for _ in range(3):
        ringer.ring()
    assert os.read(bell.fd, 2) == bytes(2)
    bell.silence()
    bell.silence()
    with pytest.raises(BlockingIOError):
        os.read(bell.fd, 1)
    ringer.close()
    bell.close()


def test_a_bell_that_nobody_hears_blocks_nobody() -> None:
    bell = Bell()
    ringer = Ringer(bell_ticket(bell.fd))
    for _ in range(200_000):  # more than a pipe holds
        ringer.ring()
    bell.close()
    for _ in range(200_000):  # and without a listener there is no SIGPIPE either
        ringer.ring()
    ringer.close()


def test_what_is_no_bell() -> None:
    bell, other = Bell(), Bell()
    wrong = replace(bell_ticket(bell.fd), descriptor=other.fd)
    with pytest.raises(UnavailableError, match="another's"):
        Ringer(wrong)
    null = os.open(os.devnull, os.O_RDWR)
    with pytest.raises(UnavailableError, match="another's"):
        Ringer(replace(bell_ticket(bell.fd), descriptor=null))
    os.close(null)
    bell.close()
    other.close()

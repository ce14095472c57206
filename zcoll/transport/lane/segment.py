"""Memory that two processes of one user and host share.

The memory has no name: it is a memfd, which the other process opens through
``/proc``. So nothing is left of it when both are gone, however they went. Nobody can
cut it off (its size is sealed), and nothing is written to it before it is reserved,
so that a full machine is an error and never a SIGBUS.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import platform
import stat
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.platform == "linux":
    import fcntl

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TOKEN = 32  # random bytes at the start, by which the other side knows the memory
_PAGE = mmap.PAGESIZE
_LOCK = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length, pid


class UnavailableError(Exception):
    """Why there is no shared memory here: a phrase for people."""


def check_machine() -> None:
    """Find out whether the lane is right on this machine.

    Messages are published by plain stores, in the order of the program. x86-64 keeps
    that order between processors; ARM does not, and Python has no fence for it.

    Raises:
        UnavailableError: It is not.
    """
    machine = platform.machine()
    if sys.platform != "linux" or not hasattr(os, "memfd_create"):
        raise UnavailableError(f"no shared memory without a name on {sys.platform}")
    if machine not in ("x86_64", "AMD64") or sys.maxsize < 2**32:
        raise UnavailableError(f"no memory order that is known to be right: {machine}")


@dataclass(frozen=True, slots=True)
class Ticket:
    """What the other process needs to open a segment or a bell.

    Attributes:
        boot: The boot of the host that it is on.
        pid: The process that has it.
        descriptor: Its descriptor there.
        token: What proves that the right thing was opened.
        size: Its size in bytes; 0 for a bell.
    """

    boot: str
    pid: int
    descriptor: int
    token: str
    size: int = 0

    @classmethod
    def read(cls, fields: Any) -> Ticket:
        """Take a ticket that came in a message.

        Raises:
            UnavailableError: It is none.
        """
        kinds = {"boot": str, "pid": int, "descriptor": int, "token": str, "size": int}
        if not isinstance(fields, dict) or any(
            type(fields.get(name)) is not kind for name, kind in kinds.items()
        ):
            raise UnavailableError("the offer makes no sense")
        return cls(**{name: fields[name] for name in kinds})

    def open(self, flags: int) -> int:
        """Open what it is for; the descriptor is the caller's.

        Raises:
            UnavailableError: It is on another host, or cannot be opened.
        """
        if self.boot != boot_id():
            raise UnavailableError("another host")
        path = f"/proc/{self.pid}/fd/{self.descriptor}"
        try:
            return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            text = f"process {self.pid} cannot be looked into: {error.strerror}"
            raise UnavailableError(text) from error


def boot_id() -> str:
    """What tells this boot of this host from every other.

    Raises:
        UnavailableError: The system does not say.
    """
    try:
        return _BOOT_ID.read_text().strip()
    except OSError as error:
        text = f"the host's boot id cannot be read: {error.strerror}"
        raise UnavailableError(text) from error


class Segment:
    """Shared memory, mapped.

    Args:
        descriptor: A memfd, which belongs to the segment from here on.
        size: Its size in bytes.
        writable: Whether this process may write it.

    Attributes:
        memory: All of it. The first page holds the token.
    """

    def __init__(self, descriptor: int, size: int, *, writable: bool = True) -> None:
        self._descriptor = descriptor
        self._size = size
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        try:
            self._map = mmap.mmap(descriptor, size, access=access)
        except OSError as error:
            os.close(descriptor)
            text = f"memory cannot be mapped: {error.strerror}"
            raise UnavailableError(text) from error
        self.memory = memoryview(self._map)

    @classmethod
    def create(cls, size: int) -> Segment:
        """Make a segment, of which the first page is reserved.

        Args:
            size: Its size in bytes. Memory is used only as far as it is reserved.

        Raises:
            UnavailableError: The system does not give it.
        """
        check_machine()
        try:
            descriptor = os.memfd_create("zcoll", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except OSError as error:
            text = f"no shared memory: {error.strerror}"
            raise UnavailableError(text) from error
        try:
            os.fchmod(descriptor, 0o600)
            os.ftruncate(descriptor, size)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        except OSError as error:
            os.close(descriptor)
            text = f"no shared memory: {error.strerror}"
            raise UnavailableError(text) from error
        segment = cls(descriptor, size)
        if not segment.reserve(0, _PAGE):
            segment.close()
            raise UnavailableError("no room for shared memory")
        segment.memory[:_TOKEN] = os.urandom(_TOKEN)
        return segment

    @classmethod
    def open(cls, ticket: Ticket, *, writable: bool = True) -> Segment:
        """Map another process's segment.

        Args:
            ticket: The segment's.
            writable: Whether this process may write it.

        Raises:
            UnavailableError: It is another user's or another host's, or it is not
                what the ticket says.
        """
        check_machine()
        descriptor = ticket.open(os.O_RDWR if writable else os.O_RDONLY)
        try:
            _check(descriptor, ticket)
        except BaseException:
            os.close(descriptor)
            raise
        segment = cls(descriptor, ticket.size, writable=writable)
        if segment.memory[:_TOKEN].hex() != ticket.token:
            segment.close()
            raise UnavailableError("the memory is another's (another container?)")
        return segment

    @property
    def ticket(self) -> Ticket:
        """What the other process needs to open it."""
        token = self.memory[:_TOKEN].hex()
        return Ticket(boot_id(), os.getpid(), self._descriptor, token, self._size)

    def reserve(self, start: int, size: int) -> bool:
        """Get the memory for a range, so that it can be written.

        Returns:
            False if there is no room.
        """
        try:
            os.posix_fallocate(self._descriptor, start, size)
        except OSError:
            return False
        return True

    def release(self, start: int, size: int) -> None:
        """Give a range of whole pages back. Nobody may be reading it."""
        with contextlib.suppress(OSError):  # then it stays reserved
            self._map.madvise(mmap.MADV_REMOVE, start, size)

    def claim(self, number: int) -> None:
        """Say that this process reads the segment, until it has closed it.

        It is a lock, so the system says so, and takes it back from who dies.

        Raises:
            UnavailableError: The system has no such locks.
        """
        try:
            self._lock(fcntl.F_OFD_SETLK, fcntl.F_RDLCK, number)
        except OSError as error:
            text = f"memory cannot be locked: {error.strerror}"
            raise UnavailableError(text) from error

    def is_claimed(self, number: int) -> bool:
        """Whether another one has made this claim, and may still read."""
        try:
            found = self._lock(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, number)
        except OSError:  # nobody knows
            return True
        return bool(_LOCK.unpack(found)[0] != fcntl.F_UNLCK)

    def _lock(self, command: int, kind: int, number: int) -> bytes:
        asked = _LOCK.pack(kind, os.SEEK_SET, number, 1, 0)
        return fcntl.fcntl(self._descriptor, command, asked)

    @property
    def reserved(self) -> int:
        """Bytes of memory in use."""
        return os.fstat(self._descriptor).st_blocks * 512

    def close(self) -> None:
        """Unmap it, once all views of it are released. Again does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self.memory.release()
            with contextlib.suppress(BufferError):  # it goes with the last view of it
                self._map.close()


def _check(descriptor: int, ticket: Ticket) -> None:
    """Make sure that this is a segment whose memory stays where it is.

    Raises:
        UnavailableError: It is not.
    """
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid():
        raise UnavailableError(f"another user (uid {status.st_uid})")
    if not stat.S_ISREG(status.st_mode) or status.st_size != ticket.size:
        raise UnavailableError("the memory is another's (another container?)")
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:
        seals = 0
    if not seals & fcntl.F_SEAL_SHRINK or ticket.size < _PAGE:
        raise UnavailableError("the memory could be cut off")

"""The private socket of a group without a secret.

It is ``/tmp/zcoll-<uid>/<port>``. The directory is the lock on the door: it belongs
to this user and nobody else may enter it, which both sides check before they use
it. ZeroMQ lets a second process bind the same path and steal the clients of the
first, so whoever serves holds a file lock (:class:`Claim`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
import weakref
from pathlib import Path

from zcoll.errors import ConfigurationError, SecurityError

# Not the environment's temporary directory: that may differ from replica to replica.
ROOT = Path("/tmp")  # noqa: S108 - what is made there is private, and checked

# The dynamic ports of RFC 6335. In this directory a port is a name only.
_FIRST, _LAST = 49152, 65535
_BACKLOG = 1024


class InUseError(ConfigurationError):
    """Another group of this user has the port on this host."""


def path_of(port: int) -> Path:
    """Say where the socket of a port is, without looking."""
    return ROOT / f"zcoll-{os.geteuid()}" / str(port)


def socket_path(port: int, *, create: bool) -> Path:
    """Say where the socket of a port is, once its directory can be trusted.

    Args:
        port: The master port.
        create: Make the directory if there is none. If False, it may be missing.

    Returns:
        The path. Nothing need be there.

    Raises:
        ConfigurationError: The directory cannot be made.
        SecurityError: It is another user's, open to others, or no directory.
    """
    path = path_of(port)
    if create:
        try:
            path.parent.mkdir(mode=0o700)
        except FileExistsError:
            pass  # by whom and how, is looked at below
        except OSError as error:
            raise ConfigurationError(
                f"the directory of private sockets cannot be made: {error}. Make"
                f" {ROOT} writable, or set ZCOLL_SECRET: a group with a secret needs"
                " no directory"
            ) from error
    try:
        found = path.parent.lstat()
    except FileNotFoundError:
        return path
    if not stat.S_ISDIR(found.st_mode):
        problem = "is no directory"
    elif found.st_uid != os.geteuid():
        problem = f"belongs to user {found.st_uid}, not to {os.geteuid()}"
    elif found.st_mode & 0o777 != 0o700:
        problem = f"has mode {found.st_mode & 0o777:04o}, not 0700"
    else:
        return path
    raise SecurityError(
        f"the directory of private sockets, {path.parent}, cannot be trusted: it"
        f" {problem}. Remove it, or have its owner do so, and zcoll makes a new one"
    )


class Claim:
    """The exclusive right to serve a port on this host, until released.

    It ends with the process too: then the files stay behind, and the next claim of
    the port removes them. In a forked child the claim is void, and the parent's
    goes on.

    Args:
        port: The master port.

    Attributes:
        port: The master port.
        path: Where the socket is to be bound.

    Raises:
        InUseError: Another group serves the port.
        ConfigurationError: The directory cannot be made.
        SecurityError: The directory cannot be trusted.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.path = socket_path(port, create=True)
        self._lock_path = self.path.with_name(f"{port}.lock")
        self._fd: int | None = None
        self._fd = _lock(self._lock_path, self.path)
        _claims.add(self)
        try:
            _remove_dead(self.path)
        except BaseException:
            self._unlock()
            raise

    @classmethod
    def reserve(cls) -> Claim:
        """Claim a port that is free, chosen at random.

        What dead owners of other ports have left behind is removed on the way.
        """
        import secrets  # noqa: PLC0415 - it loads OpenSSL, and replicas reserve none

        cls._sweep()
        for _ in range(100):
            port = _FIRST + secrets.randbelow(_LAST - _FIRST + 1)
            try:
                return cls(port)
            except InUseError:
                continue
        raise ConfigurationError(
            f"no free port was found: end some of the groups in {path_of(0).parent}"
        )

    @classmethod
    def _sweep(cls) -> None:
        """Remove the files of owners that are dead."""
        directory = socket_path(_FIRST, create=True).parent
        names = {name.removesuffix(".lock") for name in os.listdir(directory)}
        for name in names:
            if name.isdigit():
                with contextlib.suppress(InUseError):
                    cls(int(name)).release()

    def listen(self) -> socket.socket:
        """Bind the socket, once, and listen on it.

        The caller closes the socket; its file goes with :meth:`release`.
        """
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(self.path))
            listener.listen(_BACKLOG)
        except BaseException:
            listener.close()
            raise
        return listener

    def release(self) -> None:
        """Remove the files and give the port back; again, it does nothing."""
        if self._fd is not None:
            try:
                self.path.unlink(missing_ok=True)
            finally:
                self._unlock()

    def _unlock(self) -> None:
        """Remove the lock file while it is still ours, then let go of it."""
        fd, self._fd = self._fd, None
        _claims.discard(self)
        if fd is not None:
            try:
                self._lock_path.unlink(missing_ok=True)
            finally:
                os.close(fd)

    def _forget(self) -> None:
        """Leave lock and files to the parent, of which this is a forked copy."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def _lock(lock_path: Path, path: Path) -> int:
    """Lock the file that has this name *after* it was locked.

    Who releases removes the file, so the one that was opened may be gone by the
    time its lock is free, and another may stand in its place.
    """
    while True:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(lock_path, flags, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), lock_path.lstat()):
                    return fd
        except BlockingIOError:
            os.close(fd)
            raise _in_use(path) from None
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _remove_dead(path: Path) -> None:
    """Remove the socket file of a dead owner.

    One that still listens has lost its lock, to a cleaner of /tmp or because only
    the process that held it was killed: it is in use all the same.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except BlockingIOError:  # it listens, and its queue is full
            pass
    raise _in_use(path)


def _in_use(path: Path) -> InUseError:
    return InUseError(
        f"port {path.name} is in use by another group of yours on this host ({path}):"
        " end that group, or choose another master port"
    )


_claims: weakref.WeakSet[Claim] = weakref.WeakSet()


def _forget_claims() -> None:
    for claim in list(_claims):
        claim._forget()
    _claims.clear()


# A forked child shares the lock, and would hold it beyond the parent's death.
os.register_at_fork(after_in_child=_forget_claims)

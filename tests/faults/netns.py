"""Two network namespaces as two hosts, with a cable between them.

Needs root and iproute2, and iptables where packets are to be lost. All of it, the
cable and the rules, is in the two namespaces, and goes with them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 20.0  # seconds for any of the commands
CABLE = "cable"
ADDRESSES = ("192.0.2.1", "192.0.2.2")
_CLONE_NEWNET = 0x40000000


class Hosts:
    """Two hosts, by their numbers 0 and 1.

    Attributes:
        names: The namespaces.
    """

    def __init__(self, names: tuple[str, str]) -> None:
        self.names = names

    def pull_the_cable(self) -> float:
        """Take the link down, and give the time."""
        self._ip(0, "link", "set", CABLE, "down")
        return time.monotonic()

    def plug_the_cable(self) -> float:
        """Take the link up again, and give the time."""
        self._ip(0, "link", "set", CABLE, "up")
        return time.monotonic()

    def slow_down(self, rate: str) -> None:
        """Let no more than this through, each way: ``10mbit``."""
        for host in (0, 1):
            shape = ("tbf", "rate", rate, "burst", "32kbit", "latency", "400ms")
            self._within(host, "tc", "qdisc", "add", "dev", CABLE, "root", *shape)

    def lose(self, share: float) -> None:
        """Drop this share of all packets, each way."""
        for host in (0, 1):
            self._iptables(host, "-A", share)

    def lose_nothing(self, share: float) -> None:
        """Drop no packets any more."""
        for host in (0, 1):
            self._iptables(host, "-D", share)

    def _iptables(self, host: int, what: str, share: float) -> None:
        chance = ("-m", "statistic", "--mode", "random", "--probability", f"{share}")
        rule = ("iptables", "-w", what, "INPUT", "-i", CABLE, *chance, "-j", "DROP")
        self._within(host, *rule)

    def _ip(self, host: int, *words: str) -> None:
        _run("ip", "-n", self.names[host], *words)

    def _within(self, host: int, *words: str) -> None:
        _run("ip", "netns", "exec", self.names[host], *words)


@contextlib.contextmanager
def hosts() -> Iterator[Hosts]:
    """Make two hosts, and take them away afterwards.

    Raises:
        subprocess.CalledProcessError: It cannot be done here.
    """
    mark = secrets.token_hex(4)
    names = (f"zcoll-{mark}-0", f"zcoll-{mark}-1")
    with contextlib.ExitStack() as stack:
        for name in names:
            _run("ip", "netns", "add", name)
            stack.callback(_run, "ip", "netns", "del", name)
        peer = ("peer", "name", CABLE, "netns", names[1])
        _run("ip", "-n", names[0], "link", "add", CABLE, "type", "veth", *peer)
        for name, address in zip(names, ADDRESSES, strict=True):
            _run("ip", "-n", name, "address", "add", f"{address}/24", "dev", CABLE)
            _run("ip", "-n", name, "link", "set", "lo", "up")
            _run("ip", "-n", name, "link", "set", CABLE, "up")
        yield Hosts(names)


def why_not(*programs: str) -> str:
    """Say why there can be no two hosts here, or nothing.

    Args:
        programs: What is needed besides ``ip``.
    """
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", *programs):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    try:
        with hosts() as two:
            if "iptables" in programs:
                two.lose(0.5)
            if "tc" in programs:
                two.slow_down("10mbit")
    except subprocess.CalledProcessError as error:
        said = str(error.stderr).strip()
        return f"no network namespaces here: {' '.join(error.cmd)}: {said}"
    return ""


def move_to(name: str) -> None:
    """Move the calling thread, and all that it starts from now on, to this host.

    Raises:
        OSError: It cannot be done.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(f"/run/netns/{name}", os.O_RDONLY)
    try:
        if libc.setns(fd, _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(fd)


def _run(*words: str) -> None:
    subprocess.run(
        words,
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )

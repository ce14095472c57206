"""The master address: where rank 0 listens, and where replicas connect.

A group without a secret stays on this host and with this user: loopback and
wildcard addresses, and the name ``localhost``, stand for a private socket file
(:mod:`zcoll.transport.ipc`), and every other address is refused before it is
resolved. A group with a secret uses TCP.

A name may have several addresses, and resolvers shuffle them. Rank 0 and its
replicas put them into the same order, so that both choose the same one: addresses
that others can reach before loopback ones, IPv4 before IPv6, low before high.
"""

from __future__ import annotations

import errno
import logging
import re
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Literal, NamedTuple

from zcoll.errors import ConfigurationError
from zcoll.transport import ipc

_log = logging.getLogger("zcoll.transport")

_MASTER = "the master address"
_BIND = "the bind address (bind_addr=, ZCOLL_BIND_ADDR)"

# No scheme, port, path, user, bracket or blank: those are slips of the pen.
_NAME = re.compile(r"[^\s\x00-\x1f:/@%\[\]]+")

# What bind() says of an address that is not one of this host's. The second comes
# where IPv6 is switched off.
_NOT_OURS = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


class NameNotResolved(socket.gaierror):
    """The name of the master does not resolve, as yet: it may be worth waiting."""


class Place(NamedTuple):
    """Where rank 0 listens, or where a replica connects.

    Attributes:
        kind: ``"ipc"`` for a private socket file of this host, or ``"tcp"``.
        host: A numeric address, perhaps with a scope (``fe80::1%2``); "" for ipc.
        port: The port; for ipc, the name of the socket file.
    """

    kind: Literal["ipc", "tcp"]
    host: str
    port: int

    @property
    def endpoint(self) -> str:
        """The place as ZeroMQ wants it, such as ``tcp://[::1]:29500``."""
        if self.kind == "ipc":
            return f"ipc://{ipc.path_of(self.port)}"
        return f"tcp://{self}"

    @property
    def ipv6(self) -> bool:
        """Whether the socket must be told to use IPv6."""
        return ":" in self.host

    @property
    def loopback(self) -> bool:
        """Whether it is TCP that does not leave this host."""
        return self.kind == "tcp" and ip_address(self.host).is_loopback

    def __str__(self) -> str:
        if self.kind == "ipc":
            return f"port {self.port} on this host ({ipc.path_of(self.port)})"
        host = f"[{self.host}]" if self.ipv6 else self.host
        return f"{host}:{self.port}"


def bind_place(
    master_addr: str, port: int, *, secret: bool, bind_addr: str | None
) -> Place:
    """Say where rank 0 listens.

    Args:
        master_addr: The master address, as given to every replica.
        port: The master port, 1 to 65535.
        secret: Whether the group has a secret.
        bind_addr: The address to listen on where that is another than the master
            address, as behind a service name; a wildcard means all interfaces.

    Returns:
        A private socket without a secret, else an address of this host.

    Raises:
        ConfigurationError: The input is wrong, needs a secret, or names no address
            of this host.
        NameNotResolved: The name does not resolve yet. Retry.
    """
    _check_port(port)
    master = _parse(master_addr, _MASTER)
    listen, source = master, _MASTER
    if bind_addr is not None:
        listen, source = _parse(bind_addr, _BIND), _BIND
    if not secret:
        _require_local(master, _MASTER)
        _require_local(listen, source)
        return Place("ipc", "", port)
    addresses = _resolve(listen, source)
    ours = [address for address in addresses if _is_ours(address)]
    if not ours:
        raise _not_ours(listen, source, addresses)
    chosen = ours[0]
    if chosen.is_loopback and _literal(listen) is None and not _is_localhost(listen):
        _log.warning(
            "%s %r is %s on this host: replicas on other hosts cannot reach it; give"
            " the address to listen on by bind_addr= or ZCOLL_BIND_ADDR",
            source,
            listen,
            chosen,
        )
    return Place("tcp", str(chosen), port)


def connect_place(master_addr: str, port: int, *, secret: bool) -> Place:
    """Say where a replica finds rank 0.

    Args:
        master_addr: The master address, as given to every replica. A wildcard
            means this host.
        port: The master port, 1 to 65535.
        secret: Whether the group has a secret.

    Returns:
        A private socket without a secret, else the address that the name has now.

    Raises:
        ConfigurationError: The input is wrong, or needs a secret.
        NameNotResolved: The name does not resolve yet. Retry.
    """
    _check_port(port)
    master = _parse(master_addr, _MASTER)
    if not secret:
        _require_local(master, _MASTER)
        return Place("ipc", "", port)
    chosen = _resolve(master, _MASTER)[0]
    if chosen.is_unspecified:
        return Place("tcp", "127.0.0.1" if chosen.version == 4 else "::1", port)
    return Place("tcp", str(chosen), port)


def _check_port(port: int) -> None:
    if not 1 <= port <= 65535:
        raise ConfigurationError(
            f"the master port is {port}: give every replica the same port, from 1 to"
            " 65535 (master_port=, ZCOLL_MASTER_PORT)"
        )


def _parse(text: str, source: str) -> str:
    """Take off the brackets of an IPv6 address, and refuse what is no host."""
    host = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if not host:
        raise ConfigurationError(
            f"{source} is empty: give the name or address of rank 0's host"
        )
    if _literal(host) is None and not _NAME.fullmatch(host):
        raise ConfigurationError(
            f"{source} {text!r} is no name or address: give the host alone, without"
            " scheme or port"
        )
    return host


def _literal(host: str) -> IPv4Address | IPv6Address | None:
    """Read a numeric address; one that maps IPv4 into IPv6 is IPv4."""
    if host == "*":
        return IPv4Address(0)
    try:
        address = ip_address(host)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _is_localhost(host: str) -> bool:
    return host.lower() == "localhost"


def is_local(host: str) -> bool:
    """Whether an address stands for this host: what a group without a secret may use.

    Raises:
        ConfigurationError: It is no name or address.
    """
    host = _parse(host, _MASTER)
    address = _literal(host)
    if address is None:
        return _is_localhost(host)
    return address.is_loopback or address.is_unspecified


def _require_local(host: str, source: str) -> None:
    if not is_local(host):
        raise ConfigurationError(
            f"{source} {host!r} reaches beyond this host, and the group has no"
            " secret: set ZCOLL_SECRET (or secret=, ZCOLL_SECRET_FILE) to the same"
            " value on every replica, or use 127.0.0.1 for a group on this host"
        )


def _resolve(host: str, source: str) -> list[IPv4Address | IPv6Address]:
    """Look the host up; the order is the same on every host."""
    literal = _literal(host)
    try:
        found = socket.getaddrinfo(
            host if literal is None else str(literal), None, type=socket.SOCK_STREAM
        )
    except socket.gaierror as error:
        if literal is None:
            text = f"{source} {host!r} does not resolve: {error.strerror}"
            raise NameNotResolved(error.errno, text) from error
        raise ConfigurationError(
            f"{source} {host!r} cannot be used on this host: {error.strerror}"
        ) from error
    except ValueError as error:  # a label that no domain name can have
        raise ConfigurationError(
            f"{source} {host!r} is no valid host name: {error}"
        ) from error
    addresses = {_from_sockaddr(entry[4]) for entry in found}
    for address in addresses:
        _check_usable(address, source)
    return sorted(addresses, key=lambda each: (each.is_loopback, each.version, each))


def _from_sockaddr(
    sockaddr: tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes],
) -> IPv4Address | IPv6Address:
    text = str(sockaddr[0]).partition("%")[0]
    if len(sockaddr) == 4 and sockaddr[3]:
        text = f"{text}%{sockaddr[3]}"  # the number, which ZeroMQ takes as well
    address = _literal(text)
    if address is None:
        raise ConfigurationError(f"{text!r} is an address of an unknown kind")
    return address


def _check_usable(address: IPv4Address | IPv6Address, source: str) -> None:
    if address.is_multicast:
        raise ConfigurationError(f"{source} {address} is a multicast address")
    if (
        isinstance(address, IPv6Address)
        and address.is_link_local
        and not address.scope_id
    ):
        raise ConfigurationError(
            f"{source} {address} is link-local: name the interface too, as in"
            f" {address}%eth0"
        )


def _is_ours(address: IPv4Address | IPv6Address) -> bool:
    """Ask the system by binding a socket: it knows better than any list of names."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    host, _, scope = str(address).partition("%")
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            if address.version == 4:
                probe.bind((host, 0))
            else:
                probe.bind((host, 0, 0, int(scope or 0)))
    except OSError as error:
        if error.errno in _NOT_OURS:
            return False
        raise
    return True


def _not_ours(
    host: str, source: str, addresses: list[IPv4Address | IPv6Address]
) -> ConfigurationError:
    listed = ", ".join(str(address) for address in addresses)
    also = f" ({listed})" if _literal(host) is None else ""
    return ConfigurationError(
        f"rank 0 cannot listen on {source} {host!r}{also}: that is no address of this"
        " host. Start rank 0 on the host that has it; or, where a service name or a"
        " translated address leads here, give the address to listen on by bind_addr="
        " or ZCOLL_BIND_ADDR (0.0.0.0 or :: for all interfaces)"
    )

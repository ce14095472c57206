from __future__ import annotations

import logging
import os
import random
import socket
from typing import Any

import pytest
import zmq

from zcoll.errors import ConfigurationError
from zcoll.transport.address import (
    NameNotResolved,
    Place,
    bind_place,
    connect_place,
)

LOCAL = [
    "127.0.0.1",
    "127.8.9.10",
    "::1",
    "[::1]",
    "::ffff:127.0.0.1",
    "0.0.0.0",
    "::",
    "[::]",
    "*",
    "localhost",
    "LocalHost",
]
FOREIGN = [
    "192.0.2.1",
    "2001:db8::1",
    "[2001:db8::1]",
    "::ffff:192.0.2.1",
    "fe80::1%eth0",
    "example.com",
    "localhost.example.com",
    "127.1",  # getaddrinfo would take it, but nobody needs to know
]
NO_HOST = ["host:5", "[::1]:5", "tcp://host", "host/5", "a b", "host\n", "me@host"]


class Resolver:
    """Stands for ``socket.getaddrinfo``; knows one name."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.asked: list[str] = []

    def __call__(self, host: str, *_: object, **__: object) -> list[Any]:
        self.asked.append(host)
        if not self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        random.shuffle(self.addresses)
        return [
            (
                socket.AF_INET6 if ":" in text else socket.AF_INET,
                socket.SOCK_STREAM,
                6,
                "",
                (text, 0, 0, 0) if ":" in text else (text, 0),
            )
            for text in self.addresses
        ]


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    resolver = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    return resolver


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this host has no IPv6")


def test_places_are_written_for_zeromq_and_for_people() -> None:
    ipc = Place("ipc", "", 5)
    path = f"/tmp/zcoll-{os.geteuid()}/5"
    assert ipc.endpoint == f"ipc://{path}"
    assert str(ipc) == f"port 5 on this host ({path})"
    assert not ipc.ipv6
    four = Place("tcp", "127.0.0.1", 5)
    assert (four.endpoint, str(four)) == ("tcp://127.0.0.1:5", "127.0.0.1:5")
    assert not four.ipv6
    six = Place("tcp", "fe80::1%2", 5)
    assert (six.endpoint, str(six)) == ("tcp://[fe80::1%2]:5", "[fe80::1%2]:5")
    assert six.ipv6


@pytest.mark.parametrize("host", LOCAL)
def test_without_a_secret_local_addresses_are_a_private_socket(
    host: str, resolver: Resolver
) -> None:
    place = Place("ipc", "", 5)
    assert connect_place(host, 5, secret=False) == place
    assert bind_place(host, 5, secret=False, bind_addr=None) == place
    assert bind_place("127.0.0.1", 5, secret=False, bind_addr=host) == place
    assert resolver.asked == []


@pytest.mark.parametrize("host", FOREIGN)
def test_without_a_secret_others_are_refused_before_they_are_resolved(
    host: str, resolver: Resolver
) -> None:
    resolver.addresses = ["127.0.0.1"]
    with pytest.raises(ConfigurationError, match="ZCOLL_SECRET"):
        connect_place(host, 5, secret=False)
    with pytest.raises(ConfigurationError, match="ZCOLL_SECRET"):
        bind_place(host, 5, secret=False, bind_addr=None)
    with pytest.raises(ConfigurationError, match=r"bind_addr.*ZCOLL_SECRET"):
        bind_place("127.0.0.1", 5, secret=False, bind_addr=host)
    with pytest.raises(ConfigurationError, match=r"master address.*ZCOLL_SECRET"):
        bind_place(host, 5, secret=False, bind_addr="127.0.0.1")
    assert resolver.asked == []


@pytest.mark.parametrize("secret", [False, True])
@pytest.mark.parametrize("port", [-1, 0, 65536])
def test_ports_out_of_range(port: int, secret: bool) -> None:
    with pytest.raises(ConfigurationError, match=f"port is {port}.*ZCOLL_MASTER_PORT"):
        connect_place("127.0.0.1", port, secret=secret)
    with pytest.raises(ConfigurationError, match=f"port is {port}.*ZCOLL_MASTER_PORT"):
        bind_place("127.0.0.1", port, secret=secret, bind_addr=None)


@pytest.mark.parametrize("secret", [False, True])
@pytest.mark.parametrize("host", NO_HOST)
def test_what_is_no_host(host: str, secret: bool, resolver: Resolver) -> None:
    with pytest.raises(ConfigurationError, match="the host alone"):
        connect_place(host, 5, secret=secret)
    with pytest.raises(ConfigurationError, match="the host alone"):
        bind_place(host, 5, secret=secret, bind_addr=None)
    with pytest.raises(ConfigurationError, match="the host alone"):
        bind_place("127.0.0.1", 5, secret=secret, bind_addr=host)
    assert resolver.asked == []


@pytest.mark.parametrize("host", ["", "[]"])
def test_an_empty_address(host: str) -> None:
    with pytest.raises(ConfigurationError, match="the master address is empty"):
        connect_place(host, 5, secret=True)


@pytest.mark.parametrize(
    ("host", "bound", "connected"),
    [
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("::ffff:127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "0.0.0.0", "127.0.0.1"),
        ("*", "0.0.0.0", "127.0.0.1"),
        pytest.param("::1", "::1", "::1", marks=needs_ipv6),
        pytest.param("[::1]", "::1", "::1", marks=needs_ipv6),
        pytest.param("::", "::", "::1", marks=needs_ipv6),
    ],
)
def test_with_a_secret_addresses_are_tcp(host: str, bound: str, connected: str) -> None:
    assert bind_place(host, 5, secret=True, bind_addr=None) == Place("tcp", bound, 5)
    assert connect_place(host, 5, secret=True) == Place("tcp", connected, 5)
    assert bind_place("name.invalid", 5, secret=True, bind_addr=host) == Place(
        "tcp", bound, 5
    )


def test_with_a_secret_localhost_is_ipv4_on_both_sides() -> None:
    place = Place("tcp", "127.0.0.1", 5)
    assert bind_place("localhost", 5, secret=True, bind_addr=None) == place
    assert connect_place("localhost", 5, secret=True) == place


def test_the_choice_of_several_addresses_does_not_depend_on_their_order(
    resolver: Resolver,
) -> None:
    resolver.addresses = ["::1", "127.0.0.1", "2001:db8::1", "192.0.2.7", "192.0.2.30"]
    for _ in range(20):
        assert connect_place("master", 5, secret=True).host == "192.0.2.7"
    resolver.addresses = ["::1", "127.0.0.1", "2001:db8::2", "2001:db8::1"]
    for _ in range(20):
        assert connect_place("master", 5, secret=True).host == "2001:db8::1"


def test_rank_0_takes_the_address_that_is_its_own(
    resolver: Resolver, caplog: pytest.LogCaptureFixture
) -> None:
    resolver.addresses = ["192.0.2.7", "127.0.0.1"]
    with caplog.at_level(logging.WARNING, "zcoll"):
        place = bind_place("master", 5, secret=True, bind_addr=None)
    assert place == Place("tcp", "127.0.0.1", 5)
    assert "'master' is 127.0.0.1 on this host" in caplog.text
    assert "ZCOLL_BIND_ADDR" in caplog.text


def test_localhost_and_literals_give_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for host in ("localhost", "127.0.0.1"):
        bind_place(host, 5, secret=True, bind_addr=None)
    assert caplog.text == ""


def test_rank_0_cannot_listen_elsewhere(resolver: Resolver) -> None:
    resolver.addresses = ["192.0.2.7", "192.0.2.8"]
    with pytest.raises(ConfigurationError) as caught:
        bind_place("service", 5, secret=True, bind_addr=None)
    for part in ("'service'", "192.0.2.7, 192.0.2.8", "bind_addr=", "ZCOLL_BIND_ADDR"):
        assert part in str(caught.value)
    assert connect_place("service", 5, secret=True).host == "192.0.2.7"


def test_a_literal_that_is_not_ours() -> None:
    with pytest.raises(ConfigurationError, match=r"the bind address.*'192\.0\.2\.1'"):
        bind_place("127.0.0.1", 5, secret=True, bind_addr="192.0.2.1")
    with pytest.raises(ConfigurationError, match="ZCOLL_BIND_ADDR"):
        bind_place("2001:db8::1", 5, secret=True, bind_addr=None)


def test_a_host_without_sockets_to_spare_is_not_told_about_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def exhausted(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(socket, "socket", exhausted)
    with pytest.raises(OSError, match="Too many open files"):
        bind_place("127.0.0.1", 5, secret=True, bind_addr=None)


def test_bind_addr_spares_the_look_up_of_the_master(resolver: Resolver) -> None:
    resolver.addresses = ["127.0.0.1"]
    place = bind_place("service", 5, secret=True, bind_addr="127.0.0.1")
    assert place == Place("tcp", "127.0.0.1", 5)
    assert resolver.asked == ["127.0.0.1"]


def test_names_that_do_not_resolve_yet(resolver: Resolver) -> None:
    with pytest.raises(NameNotResolved, match="'later' does not resolve") as caught:
        connect_place("later", 5, secret=True)
    assert caught.value.errno == socket.EAI_NONAME
    with pytest.raises(NameNotResolved, match="'later' does not resolve"):
        bind_place("later", 5, secret=True, bind_addr=None)
    resolver.addresses = ["192.0.2.7"]
    assert connect_place("later", 5, secret=True).host == "192.0.2.7"


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("a..b", "no valid host name"),
        ("x" * 64 + ".example", "no valid host name"),
        ("fe80::1%nosuch", "cannot be used on this host"),
        ("fe80::1", "name the interface"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
    ],
)
def test_what_can_never_work(host: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        connect_place(host, 5, secret=True)
    with pytest.raises(ConfigurationError, match=text):
        bind_place(host, 5, secret=True, bind_addr=None)


def own_addresses() -> list[str]:
    found = ["127.0.0.1"]
    if has_ipv6():
        found.append("::1")
    try:
        with open("/proc/net/if_inet6") as table:
            for line in table:
                digits, *_, interface = line.split()
                if digits.startswith("fe80"):
                    raw = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))
                    found.append(f"{raw}%{interface}")
    except OSError:
        pass  # no Linux: the two above will do
    return found


@pytest.mark.parametrize("host", own_addresses())
def test_zeromq_takes_the_endpoints(host: str) -> None:
    context = zmq.Context()
    try:
        server, client = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
        bound = bind_place(host, 5, secret=True, bind_addr=None)
        server.ipv6 = client.ipv6 = bound.ipv6
        server.bind(f"{bound.endpoint.rpartition(':')[0]}:*")
        last = server.getsockopt_string(zmq.LAST_ENDPOINT)
        port = int(last.rstrip("\0").rpartition(":")[2])
        client.connect(connect_place(host, port, secret=True).endpoint)
        client.send(b"hello")
        assert server.poll(5000)
        assert server.recv_multipart()[1] == b"hello"
    finally:
        context.destroy(linger=0)

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import zmq
from zmq.utils import z85

from zcoll.errors import ConfigurationError
from zcoll.security import MINIMUM, ZAP_DOMAIN, Keys, Secret, zap_reply

TEXT = "correct horse battery staple"


@pytest.fixture(scope="module")
def keys() -> Keys:
    return Secret.of(TEXT).keys()


def test_the_keys_of_a_secret_never_change(keys: Keys) -> None:
    """Replicas of different versions must derive the same keys."""
    assert keys == Keys(
        server_public=b"a(D[*vpQ>eRKoOve<50KF8R>KecYVpf<Q5ZK}esr",
        server_secret=b"JNc>.==d(xsn!mRPC}rL3A][/<*}lzhrmhh>&TZ9",
        client_public=b"gU/<kRObVh*N}EbEKLcJO9+2sDXYKuJ$C7Qc2)V+",
        client_secret=b"l}):FM]:X3>Y6#&WhZ&%3.nIq<Pd6xed*F{EoNDb",
    )


def test_the_keys_are_derived_once(keys: Keys) -> None:
    assert Secret.of(TEXT.encode()).keys() is keys


def test_another_secret_has_other_keys(keys: Keys) -> None:
    other = Secret.of(TEXT + "!").keys()
    own = {getattr(keys, name) for name in Keys.__slots__}
    foreign = {getattr(other, name) for name in Keys.__slots__}
    assert len(own | foreign) == 8


def test_nothing_shows_the_secret(keys: Keys) -> None:
    secret = Secret.of(TEXT)
    shown = f"{secret} {secret!r} {keys} {keys!r}"
    assert TEXT not in shown
    for name in Keys.__slots__:
        assert getattr(keys, name).decode() not in shown


def test_a_secret_is_not_pickled() -> None:
    with pytest.raises(TypeError, match="secret"):
        pickle.dumps(Secret.of(TEXT))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", "ZCOLL_SECRET is empty: it needs at least 16 bytes"),
        (b"", "ZCOLL_SECRET is empty"),
        ("hunter2", r"ZCOLL_SECRET is too short \(7 bytes\).*zcoll secret"),
        (b"x" * (MINIMUM - 1), "too short"),
    ],
)
def test_bad_secrets(value: str | bytes, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text) as caught:
        Secret.of(value, "ZCOLL_SECRET")
    if value:
        assert str(value) not in str(caught.value)


def test_what_is_no_secret() -> None:
    with pytest.raises(ConfigurationError, match="text or bytes, not int"):
        Secret.of(1234567890123456)  # type: ignore[arg-type]


def test_the_least_secret_counts_bytes() -> None:
    Secret.of("x" * MINIMUM)
    Secret.of("ü" * (MINIMUM // 2))


def test_bytes_of_the_environment_that_are_no_text(tmp_path: Path) -> None:
    raw = b"\xff\xfe" * 8
    file = tmp_path / "secret"
    file.write_bytes(raw)
    text = raw.decode("utf-8", "surrogateescape")
    assert Secret.of(text).keys() is Secret.read(file).keys()


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_a_secret_file(tmp_path: Path, ending: str, keys: Keys) -> None:
    file = tmp_path / "secret"
    file.write_text(TEXT + ending, newline="")
    file.chmod(0o644)
    assert Secret.read(file).keys() is keys
    assert Secret.read(str(file)).keys() is keys


def test_only_one_newline_is_taken_off(tmp_path: Path, keys: Keys) -> None:
    file = tmp_path / "secret"
    file.write_text(TEXT + "\n\n")
    assert Secret.read(file).keys() != keys


def test_bad_secret_files(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    with pytest.raises(ConfigurationError, match=r"secret' cannot be read: .*No such"):
        Secret.read(file)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        Secret.read(tmp_path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        Secret.read("")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        Secret.read("a\0b")
    file.write_text("\n")
    with pytest.raises(ConfigurationError, match=r"secret in .*secret' is empty"):
        Secret.read(file)
    file.write_text("short\n")
    with pytest.raises(ConfigurationError, match=r"too short \(5 bytes\)"):
        Secret.read(file)


def test_a_build_without_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zmq, "has", lambda _: False)
    with pytest.raises(ConfigurationError, match="no CURVE"):
        Secret.of("never derived before").keys()


def request(keys: Keys, **changes: bytes) -> list[bytes]:
    frames = {
        "version": b"1.0",
        "id": b"7",
        "domain": ZAP_DOMAIN,
        "address": b"127.0.0.1",
        "identity": b"",
        "mechanism": b"CURVE",
        "key": z85.decode(keys.client_public),
    }
    return list({**frames, **changes}.values())


def test_a_client_of_the_group_is_let_in(keys: Keys) -> None:
    reply = [b"1.0", b"7", b"200", b"", b"replica", b""]
    assert zap_reply(request(keys), keys) == reply
    envelope = [b"\0\1\2\3\4", b""]
    assert zap_reply([*envelope, *request(keys)], keys) == [*envelope, *reply]


@pytest.mark.parametrize(
    "changes",
    [
        {"version": b"2.0"},
        {"domain": b""},
        {"domain": b"other"},
        {"mechanism": b"NULL"},
        {"mechanism": b"PLAIN"},
        {"key": b""},
        {"key": bytes(32)},
        {"more": b""},
    ],
)
def test_everybody_else_is_refused(keys: Keys, changes: dict[str, bytes]) -> None:
    reply = zap_reply(request(keys, **changes), keys)
    assert reply[2:] == [b"400", b"not a client of this group", b"", b""]
    assert reply[:2] == [b"1.0", b"7"]


def test_near_misses_of_the_key(keys: Keys) -> None:
    raw = z85.decode(keys.client_public)
    wrong = [raw[:-1], raw + b"\0", keys.client_public, z85.decode(keys.server_public)]
    wrong += [bytes([raw[0] ^ 1]) + raw[1:], z85.decode(keys.client_secret)]
    for key in wrong:
        assert zap_reply(request(keys, key=key), keys)[2] == b"400"


@pytest.mark.parametrize(
    "frames", [[], [b""], [b"1.0"], [b"1.0", b"7"], [b"x", b"", b"1.0"], [b"", b""]]
)
def test_malformed_requests_are_refused(frames: list[bytes], keys: Keys) -> None:
    assert zap_reply(frames, keys)[-4] == b"400"


@pytest.mark.parametrize(
    ("client", "let_in"), [("own", True), ("stranger", False), ("other secret", False)]
)
def test_a_real_handshake(client: str, let_in: bool, keys: Keys) -> None:
    context = zmq.Context()
    try:
        gate = context.socket(zmq.ROUTER)
        gate.bind("inproc://zeromq.zap.01")
        server, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
        server.curve_server = True
        server.curve_secretkey = keys.server_secret
        server.zap_domain = ZAP_DOMAIN
        server.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        port = server.bind_to_random_port("tcp://127.0.0.1")
        public, private = keys.client_public, keys.client_secret
        if client == "stranger":
            public, private = zmq.curve_keypair()
        dealer.curve_publickey, dealer.curve_secretkey = public, private
        dealer.curve_serverkey = keys.server_public
        if client == "other secret":
            dealer.curve_serverkey = Secret.of(TEXT + "?").keys().server_public
        monitor = dealer.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
        )
        dealer.connect(f"tcp://127.0.0.1:{port}")
        dealer.send(b"hello")
        poller = zmq.Poller()
        for each in (gate, server, monitor):
            poller.register(each, zmq.POLLIN)
        ready = dict(poller.poll(5000))
        if gate in ready:
            gate.send_multipart(zap_reply(gate.recv_multipart(), keys))
            poller.unregister(gate)
            ready = dict(poller.poll(5000))
        assert (server in ready, monitor in ready) == (let_in, not let_in)
        if let_in:
            frame = server.recv_multipart(copy=False)[1]
            assert frame.bytes == b"hello"
            assert frame.get("User-Id") == "replica"
        dealer.disable_monitor()
    finally:
        context.destroy(linger=0)

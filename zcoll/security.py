"""From the group's secret to keys, and who is let in.

Every replica derives the same two CURVE key pairs from the secret, one for rank 0
and one for all clients. Nobody who lacks the secret knows even the public key of
rank 0, so nobody gets through the handshake; the ZAP policy also checks the
client's key. A captured handshake allows guesses at the secret, which is why it has
a least length and the derivation is slow.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

import zmq
from zmq.utils import z85

from zcoll.errors import ConfigurationError

if TYPE_CHECKING:
    from os import PathLike

MINIMUM = 16  # bytes of a secret
ZAP_DOMAIN = b"zcoll"
USER_ID = b"replica"

_SALT = b"zcoll 1 CURVE"
_ZAP_VERSION = b"1.0"
_ZAP_FRAMES = 7  # version, id, domain, address, identity, mechanism, key


@dataclass(frozen=True, slots=True)
class Keys:
    """The group's CURVE keys, in Z85.

    All of them are hidden from ``repr``: the public ones let nobody in, but they
    confirm a guess at the secret.

    Attributes:
        server_public: What clients must know of rank 0.
        server_secret: What makes rank 0 rank 0.
        client_public: What rank 0 lets in.
        client_secret: What makes a client a client.
    """

    server_public: bytes = field(repr=False)
    server_secret: bytes = field(repr=False)
    client_public: bytes = field(repr=False)
    client_secret: bytes = field(repr=False)


class Secret:
    """The secret of a group; it never shows itself.

    Build it by :meth:`of` or :meth:`read`, which check it.
    """

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def __repr__(self) -> str:
        return "Secret(...)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled: give each replica its own copy")

    @classmethod
    def of(cls, value: str | bytes, source: str = "the secret") -> Secret:
        """Check a secret.

        Args:
            value: The secret; text counts in UTF-8.
            source: Where it comes from, for the error's text.

        Raises:
            ConfigurationError: It is empty or too short.
        """
        if isinstance(value, str):
            # The environment holds bytes that are no UTF-8 in this form.
            value = value.encode("utf-8", "surrogateescape")
        elif not isinstance(value, bytes):
            raise ConfigurationError(
                f"{source} must be text or bytes, not {type(value).__name__}"
            )
        if len(value) < MINIMUM:
            size = f"too short ({len(value)} bytes)" if value else "empty"
            raise ConfigurationError(
                f"{source} is {size}: it needs at least {MINIMUM} bytes. Make a good"
                " one by: zcoll secret"
            )
        return cls(value)

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Secret:
        """Read a secret from a file, without the newline at its end.

        Raises:
            ConfigurationError: The file cannot be read, or its secret is too short.
        """
        try:
            with open(path, "rb") as file:
                value = file.read()
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"the secret file {str(path)!r} cannot be read: {error}"
            ) from error
        value = value.removesuffix(b"\n").removesuffix(b"\r")
        return cls.of(value, f"the secret in {str(path)!r}")

    def keys(self) -> Keys:
        """Derive the keys: some 60 ms the first time, then remembered.

        Raises:
            ConfigurationError: This build of ZeroMQ has no CURVE.
        """
        return _derive(self._value)


@functools.lru_cache(maxsize=8)
def _derive(value: bytes) -> Keys:
    if not zmq.has("curve"):
        raise ConfigurationError(
            "the installed pyzmq has no CURVE, and a group with a secret needs it:"
            " install a pyzmq wheel (pip install --force-reinstall --only-binary"
            " pyzmq pyzmq)"
        )
    import hashlib  # noqa: PLC0415 - it loads OpenSSL, for groups with a secret

    master = hashlib.scrypt(
        value, salt=_SALT, n=2**14, r=8, p=1, maxmem=64 << 20, dklen=32
    )

    def secret_key(role: bytes) -> bytes:
        return z85.encode(hashlib.blake2b(role, key=master, digest_size=32).digest())

    server_secret, client_secret = secret_key(b"server"), secret_key(b"client")
    return Keys(
        server_public=zmq.curve_public(server_secret),
        server_secret=server_secret,
        client_public=zmq.curve_public(client_secret),
        client_secret=client_secret,
    )


def zap_reply(frames: list[bytes], keys: Keys) -> list[bytes]:
    """Answer a request of ZAP 1.0: only the group's client key is let in.

    Args:
        frames: The request. An envelope before it, as a ROUTER socket receives it,
            comes back before the reply.
        keys: The group's keys.

    Returns:
        The reply: 200 for a client of the group, 400 for everybody else.
    """
    start = 2 if frames[1:2] == [b""] else 0  # the envelope: routing id, delimiter
    envelope, request = frames[:start], frames[start:]
    request_id = request[1] if len(request) > 1 else b""
    status, text, user = (
        (b"200", b"", USER_ID)
        if _is_client(request, keys)
        else (b"400", b"not a client of this group", b"")
    )
    return [*envelope, _ZAP_VERSION, request_id, status, text, user, b""]


def _is_client(request: list[bytes], keys: Keys) -> bool:
    from hmac import compare_digest  # noqa: PLC0415 - as hashlib

    if len(request) != _ZAP_FRAMES:
        return False
    version, _, domain, _, _, mechanism, key = request
    return (
        version == _ZAP_VERSION
        and domain == ZAP_DOMAIN
        and mechanism == b"CURVE"
        and compare_digest(key, z85.decode(keys.client_public))
    )

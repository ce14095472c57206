"""Who replicas are, as HELLO and READY say it."""

from __future__ import annotations

from typing import Any

from zcoll.errors import ProtocolError
from zcoll.protocol.events import Identity

MAX_NAME = 256  # characters of a host's name or a version that are kept
_IDENTITY_TYPES: dict[str, type[int] | type[str]] = {
    "rank": int,
    "num_replicas": int,
    "host": str,
    "pid": int,
    "incarnation": int,
    "package": str,
    "python": str,
}


def write_identity(identity: Identity) -> dict[str, Any]:
    """Turn an identity into the fields of HELLO."""
    return identity._asdict()


def read_identity(fields: dict[str, Any]) -> Identity:
    """Read an identity out of the fields of HELLO.

    Raises:
        ProtocolError: A field is missing or of the wrong type.
    """
    values: dict[str, Any] = {}
    for name, kind in _IDENTITY_TYPES.items():
        value = fields.get(name)
        if type(value) is not kind:
            raise ProtocolError(f"a HELLO with {name}={value!r:.80}")
        values[name] = value[:MAX_NAME] if isinstance(value, str) else value
    return Identity(**values)


def read_table(fields: dict[str, Any]) -> dict[int, tuple[str, int]]:
    """Read who is where out of READY: host and process by rank.

    Raises:
        ProtocolError: The fields are no table of replicas.
    """
    try:
        return {
            int(row["rank"]): (str(row["host"]), int(row["pid"]))
            for row in fields["replicas"]
        }
    except (TypeError, KeyError, ValueError):
        raise ProtocolError("a table of replicas that is none") from None

"""Errors as they travel: what rank 0 decides reads the same on every replica."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zcoll.errors import (
    AbortedError,
    ClosedError,
    CollectiveError,
    DecodeError,
    EncodeError,
    GroupError,
    MismatchError,
    ProtocolError,
    ReduceError,
    ReplicaExitedError,
    ReplicaLostError,
    ZcollError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

# The errors that rank 0 decides on, by the names under which they travel.
_REMOTE = {
    kind.__name__: kind
    for kind in (
        CollectiveError,
        EncodeError,
        DecodeError,
        ReduceError,
        GroupError,
        MismatchError,
        ReplicaLostError,
        ReplicaExitedError,
        AbortedError,
        ClosedError,
    )
}
_FIELDS: dict[type[ZcollError], dict[str, type]] = {
    CollectiveError: {
        "message": str,
        "op": str,
        "seq": int,
        "rank": int,
        "site": str,
        "remote_traceback": str,
        "group": str,
    },
    GroupError: {
        "message": str,
        "rank": int,
        "host": str,
        "pid": int,
        "reason": str,
        "group": str,
    },
}


_MAX_TEXT = 20_000  # characters of one text, so that an error fits a frame


def shorten(text: str) -> str:
    """Leave out the middle of a text that is too long to travel."""
    more = len(text) - _MAX_TEXT
    if more <= 0:
        return text
    half = _MAX_TEXT // 2
    return f"{text[:half]} ... ({more} characters) ... {text[-half:]}"


def to_fields(error: CollectiveError | GroupError) -> dict[str, Any]:
    """Turn a decided error into plain fields for the wire."""
    family = CollectiveError if isinstance(error, CollectiveError) else GroupError
    fields = {name: getattr(error, name) for name in _FIELDS[family]}
    for name, value in fields.items():
        if isinstance(value, str):
            fields[name] = shorten(value)
    return {"error": type(error).__name__, **fields}


def from_fields(fields: Mapping[str, Any]) -> CollectiveError | GroupError:
    """Turn the fields of :func:`to_fields` back into the same error.

    Raises:
        ProtocolError: The fields describe no error that rank 0 decides on.
    """
    kind = _REMOTE.get(str(fields.get("error")))
    if kind is None:
        raise ProtocolError(f"unknown error {fields.get('error')!r}")
    family = CollectiveError if issubclass(kind, CollectiveError) else GroupError
    values: dict[str, Any] = {}
    for name, expected in _FIELDS[family].items():
        value = fields.get(name)
        if type(value) is not expected and not (name == "rank" and value is None):
            raise ProtocolError(f"an error with {name}={value!r}")
        values[name] = value
    return kind(**values)

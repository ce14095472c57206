"""Reduce functions that travel: to rank 0, from a group that it makes no calls in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zcoll import codec
from zcoll.errors import EncodeError
from zcoll.payload import Payload
from zcoll.reducer import default_reduce_fn

if TYPE_CHECKING:
    from collections.abc import Callable

    from zcoll.codec import Loads
    from zcoll.payload import Buffer

LIMIT = 1024 * 1024  # bytes of a pickled function: it travels in one frame
DEFAULT = b""  # what travels for the default function: rank 0 has it, and reads nothing


def encode_function(
    reduce_fn: Callable[[Any, Any], Any], rank: int
) -> Buffer | EncodeError:
    """Pickle a reduce function for rank 0; the default one is known there.

    Args:
        reduce_fn: The function.
        rank: This replica's rank in the world.

    Returns:
        The pickle, or what everybody gets to read instead.
    """
    if reduce_fn is default_reduce_fn:
        return DEFAULT
    name = name_function(reduce_fn)
    try:
        pickled = codec.encode_function(reduce_fn)
    except Exception as error:
        text = f"its reduce function {name} cannot be pickled: {codec.describe(error)}"
        return EncodeError(text, rank=rank, remote_traceback=codec.trace(error))
    if len(pickled) > LIMIT:
        text = (
            f"its reduce function {name} is {len(pickled)} bytes when pickled, and at "
            f"most {LIMIT} may travel: what large object does it refer to?"
        )
        return EncodeError(text, rank=rank)
    return pickled


def decode_function(pickled: Buffer, loads: Loads | None) -> Callable[[Any, Any], Any]:
    """The reduce function that another replica has sent.

    Args:
        pickled: What :func:`encode_function` gave there.
        loads: What unpickles it, or None for pickle.

    Raises:
        Exception: Whatever unpickling it raises.
    """
    if pickled == DEFAULT:
        return default_reduce_fn
    function: Callable[[Any, Any], Any]
    function = codec.decode(Payload([pickled], stable=True), loads)
    return function


def name_function(reduce_fn: Callable[[Any, Any], Any]) -> str:
    """A reduce function, as reports name it; not by its own ``__repr__``."""
    try:
        name = getattr(reduce_fn, "__qualname__", None)
    except Exception:  # the program's code
        name = None
    return name if isinstance(name, str) else type(reduce_fn).__qualname__

"""Objects to payloads and back: the only module that pickles.

Large buffers, such as those of NumPy arrays, stay out of the pickle stream
(protocol 5) and so need not be copied on their way. :func:`decode` must be
called only with payloads of a replica that has proved that it knows the secret:
unpickling runs what the bytes say.
"""

from __future__ import annotations

import io
import pickle
import sys
import traceback
from typing import TYPE_CHECKING, Any

import cloudpickle

from zcoll.callsite import is_own
from zcoll.wire import Buffer, Payload

if TYPE_CHECKING:
    from collections.abc import Callable

PROTOCOL = 5
OUT_OF_BAND = 64 * 1024  # bytes; smaller buffers are cheaper inside the stream
MAX_BUFFERS = 10_000  # out-of-band buffers of one value; the rest stays inside

# What pickle says of things that cloudpickle may know how to pickle: lambdas,
# local classes, functions of modules that are not importable.
_REFUSALS = (pickle.PicklingError, AttributeError, TypeError)


def encode(value: Any) -> Payload:
    """Pickle a value, or cloudpickle it when pickle refuses.

    ``pickle`` comes first because cloudpickle sends the classes of ``__main__``
    by value, and they would arrive as other classes than the receiver's own.

    Args:
        value: Any object. Read-only arrays arrive writable, as results must be.

    Returns:
        The payload. Its buffers are the value's own memory, until
        :meth:`~zcoll.wire.Payload.snapshot`.

    Raises:
        Exception: Whatever pickling the value raises.
    """
    try:
        return _dump(pickle.Pickler, value)
    except _REFUSALS:
        return _dump(cloudpickle.Pickler, value)


def _dump(pickler: Callable[..., pickle.Pickler], value: Any) -> Payload:
    buffers: list[Buffer] = []
    frozen = False

    def keep_inside(buffer: pickle.PickleBuffer) -> bool:
        nonlocal frozen
        view = buffer.raw()
        frozen = frozen or view.readonly
        if view.nbytes < OUT_OF_BAND or len(buffers) >= MAX_BUFFERS:
            return True
        buffers.append(view)
        return False

    stream = _stream(pickler, value, keep_inside)
    if frozen and "numpy" in sys.modules:
        buffers.clear()
        stream = _stream(_thawing(pickler), value, keep_inside)
    return Payload([stream, *buffers], stable=not buffers)


def _stream(
    pickler: Callable[..., pickle.Pickler],
    value: Any,
    keep_inside: Callable[[pickle.PickleBuffer], bool],
) -> bytes:
    file = io.BytesIO()
    pickler(file, protocol=PROTOCOL, buffer_callback=keep_inside).dump(value)
    return file.getvalue()


def _thawing(pickler: Callable[..., pickle.Pickler]) -> Callable[..., pickle.Pickler]:
    """A pickler under which read-only NumPy arrays arrive writable.

    Pickle keeps the flag (an array that `numpy.asarray` made of another library's
    memory often has it), but then the default ``a += b`` fails.
    """
    numpy = sys.modules["numpy"]

    class Thawing(pickler):  # type: ignore[valid-type, misc]
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, numpy.ndarray) and not obj.flags.writeable:
                return obj.copy(order="K").__reduce_ex__(PROTOCOL)
            known = getattr(super(), "reducer_override", None)
            return NotImplemented if known is None else known(obj)

    return Thawing


def decode(payload: Payload) -> Any:
    """Unpickle a payload into a fresh object.

    Args:
        payload: What :func:`encode` made, from a trusted replica. Its
            ``bytearray`` parts become the memory of the result; all others are
            copied.

    Returns:
        The object. Its arrays are writable.

    Raises:
        Exception: Whatever unpickling raises.
    """
    stream, *rest = payload.parts
    buffers = [
        part if isinstance(part, bytearray) else bytearray(part) for part in rest
    ]
    return pickle.loads(stream, buffers=buffers)  # noqa: S301 - trusted: see above


def describe(error: BaseException) -> str:
    """Write an exception as one line: ``ValueError: too large``."""
    return "".join(traceback.format_exception_only(error)).strip()


def trace(error: BaseException) -> str:
    """Write an exception with its traceback, as it travels to other replicas.

    It begins with the user's code: zcoll's own frames before it are left out.
    """
    start = error.__traceback__
    while start is not None and is_own(start.tb_frame):
        start = start.tb_next
    lines = traceback.format_exception(type(error), error, start)
    return "".join(lines).strip()

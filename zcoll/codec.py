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
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from zcoll import bundle, plain
from zcoll.absent import ABSENT
from zcoll.callsite import is_own
from zcoll.memory import copy_of
from zcoll.payload import Buffer, Payload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PROTOCOL = 5
OUT_OF_BAND = 96 * 1024  # bytes; smaller buffers are cheaper inside the stream
MAX_BUFFERS = 10_000  # out-of-band buffers of one value; the rest stays inside

# What pickle says of things that cloudpickle may know how to pickle: lambdas,
# local classes, functions of modules that are not importable.
_REFUSALS = (pickle.PicklingError, AttributeError, TypeError)


class Loads(Protocol):
    """What ``loads=`` takes: a function like :func:`pickle.loads`."""

    def __call__(self, data: Buffer, /, *, buffers: Iterable[Any]) -> Any:
        """Make the object of a pickle and its out-of-band buffers."""


def encode(value: Any) -> Payload:
    """Pickle a value, or cloudpickle it when pickle refuses.

    ``pickle`` comes first because cloudpickle sends the classes of ``__main__``
    by value, and they would arrive as other classes than the receiver's own.

    Args:
        value: Any object. Read-only arrays arrive writable, as results must be.

    Returns:
        The payload. Its buffers are the value's own memory, until
        :meth:`~zcoll.payload.Payload.snapshot`.

    Raises:
        Exception: Whatever pickling the value raises.
    """
    try:
        return _dump(pickle, value)
    except _REFUSALS:
        return _dump(_cloudpickle(), value)


def _cloudpickle() -> Any:
    import cloudpickle  # noqa: PLC0415 - few jobs need it

    return cloudpickle


def _dump(library: Any, value: Any) -> Payload:
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

    stream = library.dumps(value, protocol=PROTOCOL, buffer_callback=keep_inside)
    if frozen and "numpy" in sys.modules:
        buffers.clear()
        file = io.BytesIO()
        thawing = _thawing(library.Pickler)
        thawing(file, protocol=PROTOCOL, buffer_callback=keep_inside).dump(value)
        stream = file.getvalue()
    return Payload([stream, *buffers], not buffers)


def is_array(value: Any) -> bool:
    """Whether a value is a NumPy array, and not of a class derived from them."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray


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


def decode(payload: Payload, loads: Loads | None = None) -> Any:
    """Unpickle a payload into a fresh object.

    Args:
        payload: What :func:`encode` made, from a trusted replica. The parts that
            it owns become the memory of the result; all others are copied.
        loads: What unpickles it, instead of :func:`pickle.loads`.

    Returns:
        The object. Its arrays are writable.

    Raises:
        Exception: Whatever unpickling raises.
    """
    stream, *rest = payload.parts
    if rest and not payload.owned:
        rest = [p if isinstance(p, bytearray) else copy_of(p) for p in rest]
    if loads is not None:
        return loads(stream, buffers=rest)
    return pickle.loads(stream, buffers=rest)  # noqa: S301 - trusted: see above


def encode_items(values: Iterable[Any]) -> Payload:
    """Pickle several values into one payload, which can be taken apart unread.

    Raises:
        Exception: Whatever pickling a value raises.
    """
    return bundle.join([encode(value) for value in values])


def decode_items(payload: Payload, loads: Loads | None = None) -> list[Any]:
    """Unpickle the values of several replicas.

    Args:
        payload: What rank 0 has put together of payloads of :func:`encode`.
        loads: As for :func:`decode`.

    Returns:
        One value for each replica; :data:`ABSENT` for those that have left.

    Raises:
        Exception: Whatever unpickling raises.
    """
    return [
        ABSENT if item is None else decode(item, loads)
        for item in bundle.split(payload)
    ]


def encode_function(function: Callable[[Any, Any], Any]) -> bytes:
    """Pickle a function, by reference where pickle can.

    Raises:
        Exception: Whatever pickling it raises.
    """
    try:
        return pickle.dumps(function, PROTOCOL)
    except _REFUSALS:
        return bytes(_cloudpickle().dumps(function, PROTOCOL))


# All that a pickle of plain data in protocol 5 consists of.
_OPCODES = (
    *(pickle.PROTO, pickle.FRAME, pickle.STOP, pickle.MARK, pickle.POP),
    *(pickle.POP_MARK, pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE),
    *(pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG1, pickle.LONG4),
    *(pickle.BINFLOAT, pickle.SHORT_BINUNICODE, pickle.BINUNICODE),
    *(pickle.BINUNICODE8, pickle.SHORT_BINBYTES, pickle.BINBYTES, pickle.BINBYTES8),
    *(pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER),
    *(pickle.EMPTY_LIST, pickle.APPEND, pickle.APPENDS, pickle.EMPTY_DICT),
    *(pickle.SETITEM, pickle.SETITEMS, pickle.EMPTY_SET, pickle.ADDITEMS),
    *(pickle.FROZENSET, pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1),
    *(pickle.TUPLE2, pickle.TUPLE3, pickle.BINGET, pickle.LONG_BINGET),
    *(pickle.STACK_GLOBAL, pickle.REDUCE),
)


class _Named(Exception):  # noqa: N818 - a finding, not an error
    """A pickle names a function or class."""


class _Nameless(pickle.Unpickler):
    """Takes data without any name, as fast as pickle itself."""

    def find_class(self, module: str, name: str, /) -> NoReturn:
        raise _Named


class _Opcodes(dict[int, Any]):
    def __missing__(self, code: int) -> NoReturn:
        raise plain.NotPlainError(f"plain data has no pickle opcode {code}")


_Unpickler: Any = pickle._Unpickler  # the one in Python: its steps can be replaced


class _Plain(_Unpickler):  # type: ignore[misc]
    """Takes plain data and NumPy arrays. What it calls is checked before."""

    dispatch = _Opcodes({code[0]: _Unpickler.dispatch[code[0]] for code in _OPCODES})

    def find_class(self, module: str, name: str) -> Any:
        return plain.resolve(module, name)

    def _memoize(self) -> None:
        if isinstance(self.stack[-1], plain.Array):
            self.stack[-1].place = len(self.memo)
        self.load_memoize()

    def _build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if not isinstance(target, plain.Array | plain.Dtype):
            raise plain.NotPlainError("a pickle that changes what is no plain data")
        self.stack[-1] = built = target.build(state)
        if isinstance(target, plain.Array) and target.place is not None:
            self.memo[target.place] = built

    dispatch[pickle.MEMOIZE[0]] = _memoize
    dispatch[pickle.BUILD[0]] = _build


def plain_loads(data: Buffer, /, *, buffers: Iterable[Any] = ()) -> Any:
    """Unpickle plain data and NumPy arrays, and nothing else.

    For ``loads=`` of :func:`zcoll.initialize` and :func:`zcoll.connect`. It takes
    numbers, booleans, text, bytes, tuples, lists, dicts, sets, dates, decimals,
    fractions, the containers of :mod:`collections`, and NumPy's arrays and scalars
    of numbers, booleans, text, bytes and dates. It refuses your own classes and
    functions, arrays of objects, and structured arrays.

    A pickle that it takes runs no code of the sender. It may still exhaust memory
    or time, and what your program does with the values is your program's matter.

    Args:
        data: A pickle of protocol 5.
        buffers: Its out-of-band buffers.

    Raises:
        Exception: It is something else, or no pickle at all.
    """
    held = list(buffers)  # the first try may take some
    try:
        return _Nameless(io.BytesIO(data), buffers=held).load()
    except _Named:
        return _Plain(io.BytesIO(data), buffers=held).load()


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

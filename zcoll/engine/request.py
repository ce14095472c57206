"""A call on its way from the program to whoever drives the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zcoll.futures import Future, decode_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from zcoll.futures import Owner
    from zcoll.payload import Payload
    from zcoll.protocol.events import Contribution


class Request:
    """A call.

    Args:
        made: This replica's part; an error in it is caused by what the value raised.
        reduce_fn: The reduce function, if the operation folds.
        decode: Makes the result of the outcome.
        owner: What carries it out.
        group_name: What errors call its group; "" is the world.

    Attributes:
        made: As given.
        reduce_fn: As given.
        seq: Its number in its group, once it has gone the short way.
    """

    __slots__ = (
        *("_decode", "_future", "_group_name", "_owner"),
        *("made", "reduce_fn", "seq"),
    )

    def __init__(
        self,
        made: Contribution,
        reduce_fn: Callable[[Any, Any], Any] | None,
        decode: Callable[[Payload], Any],
        owner: Owner,
        group_name: str,
    ) -> None:
        self.made = made
        self.reduce_fn = reduce_fn
        self.seq = 0
        self._decode = decode
        self._owner = owner
        self._group_name = group_name
        self._future: Future[Any] | None = None

    @property
    def future(self) -> Future[Any]:
        """What the program waits on; it is made when it is needed."""
        if self._future is None:
            made, name = self.made, self._group_name
            self._future = Future(made, self._owner, self._decode, name)
        return self._future

    @property
    def begun(self) -> bool:
        """Whether there is a future: then the call takes the long way."""
        return self._future is not None

    def read(self, outcome: Payload) -> Any:
        """Make the result of a call that has gone the short way.

        Raises:
            DecodeError: It cannot be unpickled.
        """
        if not outcome.parts:
            return None
        try:
            return self._decode(outcome)
        except Exception as error:
            name, site = self.made.operation.name, self.made.site
            failed = decode_error(error, name, self.seq, site, self._group_name)
            raise failed from error

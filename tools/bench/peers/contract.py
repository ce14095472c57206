"""What the bench asks of each library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.payloads import Payload

    Call = Callable[[], object]


class Peer(Protocol):
    """A rank of a group that has come together.

    Each method prepares a call, with a value of its own, and gives what makes it once:
    from the value to the result that the program gets. A library without an
    operation lacks the method.
    """

    def allreduce(self, payload: Payload) -> Call:
        """Everybody gets the sum."""

    def broadcast(self, payload: Payload) -> Call:
        """Everybody gets what rank 0 has."""

    def gather(self, payload: Payload) -> Call:
        """Rank 0 gets what everybody has."""

    def pipeline(self, payload: Payload) -> Call:
        """Make 1,000 allreduces, then collect the results; gives the last one."""

    def close(self) -> None:
        """Leave the group."""

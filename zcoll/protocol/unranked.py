"""Replicas without a rank, at rank 0: they get theirs when all have come.

A replica that was told no rank says so in HELLO (:data:`~zcoll.wire.AUTO_RANK`). It
is kept here, unwelcomed, and says HELLO again every second. Once there are as many
as there are free ranks, they get these in the order of their hosts and processes.
So which rank a replica has does not depend on who came first, and those of one host
are neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from zcoll.protocol.events import Identity, Peer


class Unranked:
    """Those who wait for a rank, by their connections."""

    def __init__(self) -> None:
        self._waiting: dict[Peer, Identity] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Peer]:
        return iter(list(self._waiting))

    @property
    def identities(self) -> list[Identity]:
        """Who they are, in the order in which they would get ranks."""
        return sorted(self._waiting.values(), key=_order)

    def add(self, peer: Peer, identity: Identity) -> None:
        """One has come, perhaps not for the first time."""
        for known, waiting in list(self._waiting.items()):
            if waiting.incarnation == identity.incarnation:
                del self._waiting[known]  # it is connected again, or asks again
        self._waiting[peer] = identity

    def drop(self, peer: Peer) -> None:
        """Its connection is gone."""
        self._waiting.pop(peer, None)

    def give(self, ranks: Iterable[int]) -> list[tuple[Peer, Identity]]:
        """Give these ranks, one each, in order; afterwards nobody waits here."""
        ordered = sorted(self._waiting.items(), key=lambda item: _order(item[1]))
        self._waiting.clear()
        return [
            (peer, identity._replace(rank=rank))
            for rank, (peer, identity) in zip(sorted(ranks), ordered, strict=True)
        ]


def _order(identity: Identity) -> tuple[str, int, int]:
    return identity.host, identity.pid, identity.incarnation

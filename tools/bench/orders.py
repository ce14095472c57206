"""What the bench tells its processes to do, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """Where a group may meet.

    Attributes:
        directory: A private directory of this group.
        port: A free TCP port on loopback.
    """

    directory: str
    port: int


@dataclass(frozen=True, slots=True)
class Start:
    """Import the peer and bring the group together."""

    size: int
    place: Place


@dataclass(frozen=True, slots=True)
class Started:
    """When the imported peer began to do so and had done it, by the shared clock."""

    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Run:
    """Make some rounds of calls.

    A result is checked only of a single round: some libraries change their values.
    """

    what: str
    payload: str
    rounds: int
    check: bool = False


@dataclass(frozen=True, slots=True)
class Ran:
    """How the calls went in one process.

    Attributes:
        began: When the first one was made, by the clock that all processes share.
        ends: When each round ended.
        cpu: Seconds of processor time of all threads, for all rounds.
        peak: Bytes of memory at most, beyond those before the value was made.
    """

    began: float
    ends: list[float]
    cpu: float
    peak: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Why an order could not be carried out."""

    text: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Leave the group and end."""

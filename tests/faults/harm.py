"""What may happen to a connection on its way."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Fault:
    """What happens to one connection. Numbers of bytes count from its start.

    Attributes:
        cut_up: Cut it when so many bytes have gone up.
        cut_down: The same, down.
        flip_up: Invert the byte at this offset on its way up.
        flip_down: The same, down.
        lives: Seconds after which it is cut.
        delay: Seconds that everything is late, each way.
        rate: Bytes per second, each way.
        reset: Cut by a reset (RST) rather than an orderly end (FIN).
    """

    cut_up: int | None = None
    cut_down: int | None = None
    flip_up: int | None = None
    flip_down: int | None = None
    lives: float | None = None
    delay: float = 0.0
    rate: float | None = None
    reset: bool = False


NONE = Fault()


def short_lives(mean: float, seed: int) -> Callable[[int], Fault]:
    """Cut every connection at a random time, by RST or FIN.

    Args:
        mean: Seconds that a connection lives, on average.
        seed: Of the random choices.
    """
    choose = random.Random(seed)
    return lambda _: Fault(
        lives=choose.uniform(0, 2 * mean), reset=choose.random() < 0.5
    )

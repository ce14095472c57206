"""A lane's two processes, step by step; one of them may be killed at any step."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from lane_world import World

SEEDS = 800
BATCHES = 4


@pytest.mark.parametrize("batch", range(BATCHES))
def test_messages_arrive_whole_and_in_order_and_nobody_sleeps_for_ever(
    batch: int,
) -> None:
    """Then once more, with a death: what had been published arrives, and no more."""
    counts: Counter[str] = Counter()
    for seed in range(batch, SEEDS, BATCHES):
        world = World(seed)
        counts += run(world, f"World({seed})")
        for side, processor in enumerate(world.machine.processors):
            step = random.Random(seed).randrange(processor.steps)
            run_with_death(seed, side, step)
    assert set(counts) == {"slept", "given back", "by the socket"}


@pytest.mark.parametrize("side", [0, 1], ids=["rank 0", "replica"])
def test_a_side_dies_at_each_of_its_steps(side: int) -> None:
    for seed in (3, 9):
        world = World(seed)
        world.run()
        for step in range(world.machine.processors[side].steps):
            run_with_death(seed, side, step)


def run_with_death(seed: int, side: int, step: int) -> None:
    deaths = {side: step}
    run(World(seed, deaths), f"World({seed}, {deaths})")


def run(world: World, name: str) -> Counter[str]:
    try:
        return world.run()
    except Exception as error:
        raise AssertionError(f"see {name}.run()") from error

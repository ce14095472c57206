from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs.drawing import draw_program
from programs.program import Program
from simulation.simulated_checks import Scenario
from simulation.simulated_plan import end_with_teardown

SEEDS = 800  # tools/simulate runs as many as one has time for
BATCHES = 8


@pytest.mark.parametrize("batch", range(BATCHES))
def test_whatever_goes_wrong_calls_end_the_same_way_everywhere(batch: int) -> None:
    for seed in range(batch, SEEDS, BATCHES):
        try:
            Scenario(seed).run()
        except Exception as error:
            raise AssertionError(f"see tools/simulate --seed {seed}") from error


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Programs that hypothesis can make simpler, for 1 to 5 replicas."""
    rng: random.Random = draw(st.randoms(use_true_random=False))
    size = draw(st.integers(1, 5))
    return end_with_teardown(draw_program(rng, size, longest=8))


@settings(
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(programs(), st.integers(0, 1 << 32))
def test_without_faults_every_result_is_the_one_of_the_model(
    program: Program, seed: int
) -> None:
    """Messages are late, repeated, and in the order of another replica's program."""
    Scenario(seed, plan=program, faults=False).run()

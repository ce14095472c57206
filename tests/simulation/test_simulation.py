import pytest
from simulation.simulated_checks import Scenario

SEEDS = 800  # tools/simulate runs as many as one has time for
BATCHES = 8


@pytest.mark.parametrize("batch", range(BATCHES))
def test_whatever_goes_wrong_calls_end_the_same_way_everywhere(batch: int) -> None:
    for seed in range(batch, SEEDS, BATCHES):
        try:
            Scenario(seed).run()
        except Exception as error:
            raise AssertionError(f"see tools/simulate --seed {seed}") from error

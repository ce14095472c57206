import pytest
from bench.figures import Samples, percentile, round_times
from bench.orders import Ran, Started
from bench.startup import join_time


def ran(began: float, *ends: float, cpu: float = 0.0, peak: int = 0) -> Ran:
    return Ran(began, list(ends), cpu, peak)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([ran(0.0, 2.0, 5.0)], [2.0, 3.0]),
        ([ran(1.0, 2.0), ran(0.0, 2.5)], [1.5]),  # from the last one being ready
        ([ran(0.0, 1.0, 2.0), ran(0.0, 3.0, 4.0)], [3.0, 1.0]),  # the last result
        ([ran(0.0, 0.1, 0.2, 9.0), ran(0.0, 3.0, 6.0, 9.0)], [3.0, 3.0, 3.0]),
        ([ran(0.0, 1.0), ran(5.0, 4.0)], [0.0]),  # never less than nothing
    ],
)
def test_a_round_lasts_until_the_last_replica_has_its_result(
    answers: list[Ran], expected: list[float]
) -> None:
    assert round_times(answers) == expected


def test_answers_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        round_times([ran(0.0, 1.0, 2.0), ran(0.0, 1.0)])


@pytest.mark.parametrize(
    ("count", "share", "expected"),
    [(1, 0.99, 1), (10, 0.99, 10), (100, 0.99, 99), (101, 0.99, 100), (4, 0.5, 2)],
)
def test_percentile(count: int, share: float, expected: int) -> None:
    times = [float(i) for i in range(count, 0, -1)]
    assert percentile(times, share) == expected


def test_figures_are_those_of_all_turns_together() -> None:
    samples = Samples()
    samples.add([ran(0.0, 1.0, 3.0, cpu=1.0, peak=10), ran(0.0, 1.0, 3.0, cpu=2.0)])
    samples.add([ran(10.0, 20.0, cpu=3.0, peak=7), ran(10.0, 20.0, peak=99)])
    figures = samples.figures(1)
    assert figures is not None
    assert (figures.rounds, figures.median, figures.p99) == (3, 2.0, 10.0)
    assert (figures.cpu, figures.peak) == (2.0, 10)  # of all, and of rank 0


def test_a_call_of_a_pipeline_is_a_share_of_its_round() -> None:
    samples = Samples()
    samples.add([ran(0.0, 8.0, cpu=4.0, peak=3)])
    figures = samples.figures(4)
    assert figures is not None
    assert (figures.median, figures.p99, figures.cpu, figures.peak) == (2, 2, 1, 3)


def test_nothing_measured_gives_no_figures() -> None:
    assert Samples(left_out="memory").figures(1) is None


def test_joining_counts_from_the_last_one_being_there() -> None:
    assert join_time([Started(0.0, 7.0), Started(5.0, 6.0)]) == 2.0

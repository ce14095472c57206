import json

import pytest
from bench import bars, tables
from bench.cells import Cell
from bench.figures import Figures
from bench.payloads import PAYLOADS
from bench.report import Report


def figures(median: float, peak: int = 0) -> Figures:
    return Figures(rounds=3, median=median, p99=2 * median, cpu=median, peak=peak)


def report(**medians: float) -> Report:
    """An allreduce of an int between four, by variant (_ for -), in seconds."""
    cell = Cell("allreduce", PAYLOADS["int"], 4)
    names = [name.replace("_", "-") for name in medians]
    made = Report({}, names)
    for name, median in zip(names, medians.values(), strict=True):
        made.figures[cell, name] = figures(median)
    return made


def found(made: Report) -> dict[tuple[str, int], tuple[float, bool]]:
    return {
        (f"{each.subject} {each.what}", each.size): (round(each.found, 3), each.met)
        for each in [*bars.ratios(made), *bars.ceilings(made)]
    }


@pytest.mark.parametrize(
    ("ours", "theirs", "met"), [(130e-6, 100e-6, True), (131e-6, 100e-6, False)]
)
def test_a_bar_is_met_up_to_its_ratio(ours: float, theirs: float, met: bool) -> None:
    made = report(zcoll_ipc=ours, adaptdl=theirs)
    key = ("zcoll-ipc : adaptdl allreduce int", 4)
    assert found(made) == {key: (round(ours / theirs, 3), met)}


def test_bars_need_both_sides() -> None:
    assert found(report(zcoll_ipc=1.0, mpi4py=1.0)) == {}  # only for 8 replicas
    assert found(report(adaptdl=1.0, torch_object=1.0)) == {}


def test_bars_between_variants_of_zcoll() -> None:
    key = ("zcoll-tcp : zcoll-ipc allreduce int", 4)
    assert found(report(zcoll_ipc=2.0, zcoll_tcp=3.0)) == {key: (1.5, True)}


def test_start_and_memory_have_ceilings() -> None:
    made = Report({}, ["zcoll-ipc"], imports={"zcoll": 0.09, "torch": 9.0})
    made.joins = {("zcoll-ipc", 2): 0.06, ("zcoll-ipc", 4): 9.0}
    large = PAYLOADS["256MB"]
    made.figures[Cell("allreduce", large, 8), "zcoll-ipc"] = figures(1, 4 * large.size)
    assert found(made) == {
        ("zcoll import, s", 1): (0.09, True),
        ("zcoll-ipc initialize, s", 2): (0.06, False),
        ("zcoll-ipc memory, operands of 256MB", 8): (4.0, True),
    }


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.234e-6, "1.23"), (12.34e-6, "12.3"), (123.4e-6, "123"), (4.5678, "4,567,800")],
)
def test_times_have_three_digits_that_matter(seconds: float, text: str) -> None:
    assert tables.microseconds(seconds) == text


def test_tables_show_figures_and_what_is_left_out() -> None:
    made = report(zcoll_ipc=100e-6, adaptdl=80e-6)
    made.variants.append("torch-object")
    large = Cell("allreduce", PAYLOADS["256MB"], 4)
    made.figures[large, "torch-object"] = figures(2.0)
    made.left_out[large, "zcoll-ipc"] = "memory"
    made.left_out[large, "adaptdl"] = "no such call"
    assert tables.times(made, "allreduce", "median").splitlines() == [
        "| allreduce | zcoll-ipc | adaptdl | torch-object |",
        "| --- | ---: | ---: | ---: |",
        "| int, N=4 | 100 | 80 | - |",
        "| 256MB, N=4 | memory | - | 2,000,000 |",
    ]
    assert "| int, N=4 | 1.25 | - |" in tables.ratios(made, "zcoll-ipc")


def test_verdicts_have_a_row_for_each_bar() -> None:
    lines = tables.verdicts(
        [
            bars.Verdict("a : b", "allreduce int", 2, 0.5, 1.0),
            bars.Verdict("a : b", "allreduce int", 8, 1.5, 1.2),
            bars.Verdict("a : c", "allreduce int", 8, 1.0, 1.0),
        ]
    ).splitlines()
    assert lines[2:] == [
        "| a : b | allreduce int | 0.50 (1) met | 1.50 (1.2) **missed** |",
        "| a : c | allreduce int |  | 1.00 (1) met |",
    ]


def test_a_report_as_json_holds_it_all() -> None:
    made = report(zcoll_ipc=100e-6, adaptdl=80e-6)
    made.left_out[Cell("gather", PAYLOADS["int"], 4), "adaptdl"] = "no such call"
    read = json.loads(json.dumps(made.as_json()))
    assert [each["median"] for each in read["figures"]] == [100e-6, 80e-6]
    assert read["left_out"] == [
        {
            "what": "gather",
            "payload": "int",
            "replicas": 4,
            "variant": "adaptdl",
            "why": "no such call",
        }
    ]
    assert [each["met"] for each in read["bars"]] == [True]

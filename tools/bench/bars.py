"""What zcoll has to reach beside its peers, and whether it does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.report import Report

# The limit that has as many threads between caller and socket as zcoll.
SAME_THREADS = "limit-loop"

IMPORT = 0.1  # seconds, for zcoll at most
JOIN = 0.05  # seconds for a group of two from both being there, at most
OPERANDS = 5.0  # memory of rank 0 at 8 replicas and 256 MB: four and the result


@dataclass(frozen=True, slots=True)
class Bar:
    """The most that a median of zcoll may be, as a share of another one.

    Attributes:
        ours: The variant of zcoll.
        against: The other variant.
        what: The kind of call.
        payloads: For which payloads it holds.
        at_most: The ratio, by the number of replicas.
    """

    ours: str
    against: str
    what: str
    payloads: Sequence[str]
    at_most: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A bar in one cell, or a ceiling, beside what was measured."""

    subject: str
    what: str
    size: int
    found: float
    at_most: float

    @property
    def met(self) -> bool:
        """Whether it is low enough."""
        return self.found <= self.at_most


def _at(*at_most: float) -> dict[int, float]:
    """Ratios for 2, 4 and 8 replicas; one ratio means all of them."""
    ratios = at_most if len(at_most) == 3 else at_most * 3
    return dict(zip((2, 4, 8), ratios, strict=True))


SMALL = ("int", "dict")
NUMBERS = ("int", "1KB", "64KB", "1MB")  # what a tensor can hold, up to 1 MB

BARS = (
    Bar("zcoll-ipc", SAME_THREADS, "allreduce", ("int",), _at(1.5)),
    Bar("zcoll-ipc", "adaptdl", "allreduce", SMALL, _at(1.3)),
    Bar("zcoll-ipc", "adaptdl", "allreduce", ("1MB",), _at(0.15)),
    Bar("zcoll-ipc", "adaptdl", "allreduce", ("32MB",), _at(0.8)),
    Bar("zcoll-ipc", "adaptdl", "pipeline", ("int",), _at(0.5)),
    Bar("zcoll-ipc", "torch-object", "allreduce", ("dict", *NUMBERS), _at(0.15)),
    Bar(
        *("zcoll-ipc", "mpi4py", "allreduce"),
        ("1MB", "32MB", "256MB"),
        _at(0.7, 0.5, 0.4),
    ),
    Bar("zcoll-ipc", "mpi4py", "allreduce", ("int",), {8: 2.0}),
    Bar("zcoll-ipc", "torch-tensor", "allreduce", NUMBERS, _at(0.9)),
    Bar("zcoll-ipc", "torch-tensor", "allreduce", ("32MB",), _at(2.0)),
    Bar("zcoll-tcp", "zcoll-ipc", "allreduce", ("int",), {4: 1.5}),
    Bar("zcoll-tcp", "zcoll-ipc", "allreduce", ("32MB",), {4: 4.0}),
    Bar("zcoll-lane", "adaptdl", "allreduce", SMALL, _at(0.6, 0.5, 0.6)),
    Bar("zcoll-lane", "mpi4py", "allreduce", ("int",), _at(4.0, 1.2, 0.8)),
    Bar("zcoll-lane", "mpi4py", "allreduce", ("1MB",), _at(0.15, 0.12, 0.12)),
    Bar("zcoll-lane", "mpi4py", "allreduce", ("32MB",), _at(0.4, 0.3, 0.25)),
    Bar("zcoll-lane", "torch-tensor", "allreduce", NUMBERS, _at(0.5, 0.3, 0.2)),
    Bar("zcoll-lane", "torch-tensor", "allreduce", ("32MB",), _at(1.2, 1.4, 1.0)),
)


def ratios(report: Report) -> Iterator[Verdict]:
    """The bars in all cells where both sides were measured."""
    for bar in BARS:
        for payload in bar.payloads:
            for size, at_most in bar.at_most.items():
                ours = report.median(bar.ours, bar.what, payload, size)
                theirs = report.median(bar.against, bar.what, payload, size)
                if ours is not None and theirs is not None:
                    subject = f"{bar.ours} : {bar.against}"
                    what = f"{bar.what} {payload}"
                    yield Verdict(subject, what, size, ours / theirs, at_most)


def ceilings(report: Report) -> Iterator[Verdict]:
    """What is bounded by itself: seconds of the start, operands in memory."""
    if "zcoll" in report.imports:
        yield Verdict("zcoll", "import, s", 1, report.imports["zcoll"], IMPORT)
    joined = report.joins.get(("zcoll-ipc", 2))
    if joined is not None:
        yield Verdict("zcoll-ipc", "initialize, s", 2, joined, JOIN)
    for name in ("zcoll-ipc", "zcoll-lane"):
        held = report.operands(name, "256MB", 8)
        if held is not None:
            yield Verdict(name, "memory, operands of 256MB", 8, held, OPERANDS)

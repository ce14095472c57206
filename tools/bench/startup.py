"""How long it takes to import a library, and to bring a group together."""

from __future__ import annotations

import statistics
import subprocess
import sys
from typing import TYPE_CHECKING

from bench.group import BrokenGroupError, Group
from bench.variants import installed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.orders import Started
    from bench.variants import Variant

MODULES = ("zcoll", "zmq", "adaptdl.reducer", "mpi4py.MPI", "torch.distributed")

_IMPORT = """
import sys, time
began = time.perf_counter()
import {module}
print(time.perf_counter() - began)
if {module!r} == "zcoll" and "numpy" in sys.modules:
    sys.exit("zcoll has imported NumPy")
"""

Joins = dict[tuple[str, int], list[float]]


def imports(repeats: int) -> dict[str, float]:
    """Median seconds of an import in a fresh interpreter, by module, in turns."""
    modules = [module for module in MODULES if installed(module.split(".")[0])]
    taken: dict[str, list[float]] = {module: [] for module in modules}
    for _ in range(repeats):
        for module in modules:
            program = [sys.executable, "-c", _IMPORT.format(module=module)]
            ran = subprocess.run(program, stdout=subprocess.PIPE, check=True, text=True)
            taken[module].append(float(ran.stdout))
    return {module: statistics.median(times) for module, times in taken.items()}


def join_time(started: Sequence[Started]) -> float:
    """Seconds from the last one being there to the last one having joined."""
    return max(s.ended for s in started) - max(s.began for s in started)


def add_joins(variants: Sequence[Variant], repeats: int, joins: Joins) -> None:
    """Bring groups of two together, in turns."""
    for _ in range(repeats):
        for variant in variants:
            try:
                group = Group(variant, 2)
            except BrokenGroupError as error:
                sys.stderr.write(f"{variant.name} failed: {error}\n")
                continue
            group.close()
            joins.setdefault((variant.name, 2), []).append(join_time(group.started))

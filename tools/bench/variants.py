"""What is measured: zcoll in its ways, its peers, and the limit."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bench.orders import Place
    from bench.peers.contract import Peer

BLOCKING = ("allreduce", "broadcast", "gather")


@dataclass(frozen=True, slots=True)
class Variant:
    """A library in one of its ways.

    Attributes:
        name: Its name in tables and on the command line.
        source: The class that speaks to it, as ``module:class`` of `bench.peers`.
        needs: The package that has to be installed.
        does: The kinds of cells that it can do.
        operands: Operands that all processes of a group hold at most, together, as
            a function of the number of replicas; more than fits is not measured.
        environment: Variables for its processes.
        launcher: Whether ``mpiexec`` starts them.
        keeps_values: Whether values come back as Python sees them, so that results
            can be checked.
        takes_dict: Whether it takes any object, or numbers only.
    """

    name: str
    source: str
    needs: str
    does: tuple[str, ...]
    operands: Callable[[int], int]
    environment: Mapping[str, str] = field(default_factory=dict)
    launcher: bool = False
    keeps_values: bool = True
    takes_dict: bool = True

    @property
    def installed(self) -> bool:
        """Whether it can be measured here."""
        if self.launcher and mpiexec() is None:
            return False
        return installed(self.needs)

    def load(self) -> Callable[[int, int, Place], Peer]:
        """Import it, and give what joins a group as a rank of so many, somewhere."""
        module, name = self.source.split(":")
        start: Callable[[int, int, Place], Peer] = getattr(
            importlib.import_module(f"bench.peers.{module}"), name
        )
        return start


def installed(package: str) -> bool:
    """Whether a package is at hand."""
    return importlib.util.find_spec(package) is not None


def mpiexec() -> str | None:
    """The launcher that comes with the interpreter's own MPI, or any."""
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec")


_ZMQ_ONLY = {"ZCOLL_LANE": "zmq"}
_SHARED_MEMORY = {"ZCOLL_LANE": "auto"}

VARIANTS = {
    variant.name: variant
    for variant in (
        Variant(
            *("zcoll-ipc", "zcoll:OverIpc", "zcoll", (*BLOCKING, "pipeline")),
            operands=lambda n: 2 * n + 4,
            environment=_ZMQ_ONLY,
        ),
        Variant(
            *("zcoll-tcp", "zcoll:OverTcp", "zcoll", (*BLOCKING, "pipeline")),
            operands=lambda n: 2 * n + 6,
            environment=_ZMQ_ONLY,
        ),
        Variant(
            *("zcoll-lane", "zcoll:OverIpc", "zcoll", (*BLOCKING, "pipeline")),
            operands=lambda n: 2 * n + 6,
            environment=_SHARED_MEMORY,
        ),
        Variant(
            *("limit", "limit:Limit", "zmq", (*BLOCKING, "pipeline")),
            operands=lambda n: 3 * n,
            keeps_values=False,
        ),
        Variant(
            *("limit-loop", "limit_loop:LimitLoop", "zmq", (*BLOCKING, "pipeline")),
            operands=lambda n: 3 * n,
            keeps_values=False,
        ),
        Variant(
            *("adaptdl", "adaptdl:AdaptDL", "adaptdl"),
            ("allreduce", "broadcast", "pipeline"),
            operands=lambda n: 2 * n + 6,
        ),
        Variant(
            *("mpi4py", "mpi4py:Objects", "mpi4py", BLOCKING),
            operands=lambda n: 4 * n,
            launcher=True,
        ),
        Variant(
            *("mpi4py-buffers", "mpi4py:Buffers", "mpi4py", BLOCKING),
            operands=lambda n: 2 * n + 2,
            launcher=True,
            takes_dict=False,
        ),
        Variant(
            *("torch-object", "torch:Objects", "torch", BLOCKING),
            operands=lambda n: n * (2 * n + 3),
        ),
        Variant(
            *("torch-tensor", "torch:Tensors", "torch", (*BLOCKING, "pipeline")),
            operands=lambda n: 2 * n + 2,
            takes_dict=False,
        ),
    )
}

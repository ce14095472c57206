"""A pytest plugin that puts zcoll in the place of AdaptDL's collectives.

AdaptDL's own tests import ``adaptdl.collective`` and ``adaptdl.reducer``. With
``pytest -p zcoll_for_adaptdl`` they get zcoll's, without a change of their own.
"""

from __future__ import annotations

import importlib
import multiprocessing
import sys
import types
from typing import TYPE_CHECKING, Any

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future


class Reducer:
    """``adaptdl.reducer.Reducer``, as a communicator of zcoll."""

    def __init__(
        self, rank: int, replicas: int, root_host: str, root_port: int
    ) -> None:
        self._comm = zcoll.connect(root_host, root_port, rank, replicas)

    def broadcast(self, obj: Any) -> Any:
        """Give everybody the value of replica 0."""
        return self._comm.broadcast(obj)

    def allreduce(
        self, obj: Any, reduce_fn: Callable[[Any, Any], Any] = zcoll.default_reduce_fn
    ) -> Any:
        """Reduce a value over all replicas."""
        return self._comm.allreduce(obj, reduce_fn)

    def allreduce_async(
        self, obj: Any, reduce_fn: Callable[[Any, Any], Any] = zcoll.default_reduce_fn
    ) -> Future[Any]:
        """Begin to reduce a value over all replicas."""
        return self._comm.allreduce_async(obj, reduce_fn)


def install() -> None:
    """Make ``adaptdl.collective`` and ``adaptdl.reducer`` zcoll's."""
    reducer = types.ModuleType("adaptdl.reducer")
    reducer.__dict__.update(Reducer=Reducer, default_reduce_fn=zcoll.default_reduce_fn)
    package = importlib.import_module("adaptdl")
    for name, module in (("collective", zcoll), ("reducer", reducer)):
        sys.modules[f"adaptdl.{name}"] = module
        setattr(package, name, module)


def pytest_report_header() -> str:
    """Tell what is tested."""
    places = [sys.modules[name] for name in ("adaptdl.collective", "adaptdl.reducer")]
    return f"AdaptDL's tests run on {places[0].__name__}, {places[1].Reducer}"


install()
# The replicas of these tests are local functions, which only a fork can run.
multiprocessing.set_start_method("fork", force=True)

"""The ends of a program, and forks: nobody is left waiting, nothing hangs.

A program that ends without teardown still delivers what it has sent. ``atexit``
does not run in children of ``multiprocessing``; its ``Finalize`` does.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING

from zcoll import codec
from zcoll.errors import GroupError

if TYPE_CHECKING:
    from zcoll.engine.engine import Engine

_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_lock = threading.Lock()
_hooked: set[int] = set()  # processes whose multiprocessing calls us at the end


def watch(engine: Engine, report: str | None) -> None:
    """Let this engine leave its group when the program ends."""
    with _lock:
        _engines.add(engine)
        if report is not None:
            _reports[engine] = report
        multiprocessing = sys.modules.get("multiprocessing.util")
        if multiprocessing is not None and os.getpid() not in _hooked:
            _hooked.add(os.getpid())
            multiprocessing.Finalize(None, leave_all, exitpriority=100)


def leave_all() -> None:
    """The program ends: leave every group, and say why if there is a reason."""
    # What ended the program; in an interactive session, only what was printed last.
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    reason = "" if error is None else codec.describe(error)
    engines = list(_engines)
    for engine in engines:
        _report(engine, error)
        engine.leave(reason, wait=False)
    for engine in engines:
        engine.leave()


def _report(engine: Engine, error: BaseException | None) -> None:
    """Tell ``zcoll run`` when this replica only ends because of another one."""
    report = _reports.get(engine)
    if report is not None and isinstance(error, GroupError):
        try:
            os.close(os.open(report, os.O_CREAT | os.O_WRONLY, 0o600))
        except OSError:
            return  # the launcher is gone, or was never there


def _let_go() -> None:
    """In a forked child: its parent's groups are not its own."""
    for engine in list(_engines):
        engine.let_go()
    _engines.clear()


_reports: weakref.WeakKeyDictionary[Engine, str] = weakref.WeakKeyDictionary()

atexit.register(leave_all)
os.register_at_fork(after_in_child=_let_go)

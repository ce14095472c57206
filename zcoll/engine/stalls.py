"""Calls that take long: who is missing, and where they are, goes to the log."""

from __future__ import annotations

import functools
import logging
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any

from zcoll.callsite import program_site
from zcoll.engine.questions import explain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from zcoll.futures import Future
    from zcoll.protocol.events import Missing

_log = logging.getLogger("zcoll.stalls")

CHECK = 0.25  # of the first warning's time: how often calls are looked at


class Stalls:
    """Watches the calls for which the program waits.

    Args:
        warning: Seconds of waiting after which it is logged first; then at twice
            that, and so on.
        ask: Asks rank 0 who is missing in a call, and passes the answer on.
        run: Runs a job where it keeps nobody waiting.
    """

    def __init__(
        self,
        warning: float,
        ask: Callable[[Future[Any], Callable[[Missing], None]], None],
        run: Callable[[Callable[[], None]], None],
    ) -> None:
        self._warning = warning
        self._ask = ask
        self._run = run
        self._next: dict[tuple[int, int], float] = {}  # by call: seconds of waiting
        self._looked = 0.0

    def check(self, futures: Iterable[Future[Any]], now: float) -> None:
        """Ask about calls that have taken long, now and then."""
        if now - self._looked < self._warning * CHECK:
            return
        self._looked = now
        waiting = [future for future in futures if future.waiting_since is not None]
        keys = {(future.group, future.seq) for future in waiting}
        self._next = {key: at for key, at in self._next.items() if key in keys}
        for future in waiting:
            waited = now - (future.waiting_since or now)
            key = (future.group, future.seq)
            if waited >= self._next.get(key, self._warning):
                self._next[key] = 2 * waited
                self._ask(future, functools.partial(self._tell, future, waited))

    def _tell(self, future: Future[Any], waited: float, answer: Missing) -> None:
        self._run(functools.partial(_log_stall, future, waited, answer))


def _log_stall(future: Future[Any], waited: float, answer: Missing) -> None:
    where = f" of group {future.group_name!r}" if future.group_name else ""
    call = f"{future.operation.name}, call {future.seq}{where} ({future.site})"
    _log.warning("%s has waited for %.0f s; %s", call, waited, explain(answer))
    for absence in answer.absences:
        if absence.stack:
            _log.debug("the stack of replica %d:\n%s", absence.rank, absence.stack)


def main_thread() -> tuple[str, str]:
    """Where this program is: the main thread's line of user code, and its stack."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    if frame is None:
        return "its end", ""
    return program_site(frame), "".join(traceback.format_stack(frame))

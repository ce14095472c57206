"""Questions to rank 0: who is missing in a call, and where are they?"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from zcoll.errors import CollectiveTimeoutError, name_ranks

if TYPE_CHECKING:
    from collections.abc import Callable

    from zcoll.futures import Future
    from zcoll.protocol.events import Missing
    from zcoll.protocol.replica import Replica

ANSWER_LIMIT = 0.5  # seconds that a timed-out call waits for rank 0's report


class Questions:
    """The questions that are on their way.

    Args:
        replica: The machine that puts them.
    """

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._notes: dict[int, list[Callable[[Missing], None]]] = {}  # by seq

    def ask(self, future: Future[Any], note: Callable[[Missing], None]) -> None:
        """Ask about a call, on the loop thread; the answer is passed to ``note``."""
        if not future.done():
            self._notes.setdefault(future.seq, []).append(note)
            self._replica.ask(future.seq)

    def answer(self, answer: Missing) -> None:
        """Rank 0 has answered; on the loop thread."""
        for note in self._notes.pop(answer.seq, []):
            note(answer)

    def explain(
        self,
        future: Future[Any],
        timeout: float,
        post: Callable[[Callable[[], object]], None],
    ) -> CollectiveTimeoutError:
        """Say why a call has run out of time, on the thread that waits for it.

        The question goes the way of everything else, so an outcome that was sent
        before the answer arrives before it.

        Args:
            future: The call.
            timeout: The limit that has run out, in seconds.
            post: Has a job done on the loop thread.
        """
        answered = threading.Event()
        answers: list[Missing] = []

        def note(answer: Missing) -> None:
            answers.append(answer)
            answered.set()

        post(lambda: self.ask(future, note))
        answered.wait(ANSWER_LIMIT)
        if answers:
            missing, report = answers[0].ranks, answers[0].absences
            text = explain(answers[0])
        else:
            missing, report = [0], []
            silent = time.monotonic() - self._replica.heard
            text = f"rank 0 does not answer; it was heard of {silent:.1f} s ago"
        return CollectiveTimeoutError(
            text,
            missing=missing,
            timeout=timeout,
            report=report,
            op=future.operation.name,
            seq=future.seq,
            site=future.site,
            future=future,
        )


def explain(answer: Missing) -> str:
    """Say who is missing in a call and where they are, or what it waits for."""
    if not answer.ranks:
        return answer.text
    known = "; ".join(str(absence) for absence in answer.absences)
    more = len(answer.ranks) - len(answer.absences)
    if not more:
        return f"missing: {known}"
    return f"{name_ranks(answer.ranks)} missing: {known}; and {more} more"

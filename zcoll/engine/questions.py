"""Questions to rank 0: who is missing in a call, and where are they?"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from zcoll.absence import Absence, Whereabouts
from zcoll.errors import CollectiveTimeoutError, name_ranks
from zcoll.protocol.events import Missing

if TYPE_CHECKING:
    from collections.abc import Callable

    from zcoll.futures import Future
    from zcoll.protocol.replica import Replica

Key = tuple[int, int]  # a call: its group, and its number there
ANSWER_LIMIT = 0.5  # seconds that a timed-out call waits for rank 0's report
PATIENCE = 1.0  # seconds after which others are told that rank 0 does not answer


class Questions:
    """The questions that are on their way.

    Args:
        replica: The machine that puts them.
    """

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._notes: dict[Key, list[Callable[[Missing], None]]] = {}
        self._asked: dict[Key, float] = {}  # when

    def ask(self, future: Future[Any], note: Callable[[Missing], None]) -> None:
        """Ask about a call, on the loop thread; the answer is passed to ``note``."""
        if not future.done():
            key = (future.group, future.seq)
            self._notes.setdefault(key, []).append(note)
            self._asked.setdefault(key, time.monotonic())
            self._replica.ask(*key)

    def answer(self, answer: Missing) -> None:
        """Rank 0 has answered; on the loop thread."""
        key = (answer.group, answer.seq)
        self._asked.pop(key, None)
        for note in self._notes.pop(key, []):
            note(answer)

    def tick(self, now: float) -> None:
        """Answer for rank 0 where it does not answer; on the loop thread."""
        if self._asked:
            late = [key for key, at in self._asked.items() if now - at >= PATIENCE]
            for key in late:
                self.answer(self._silence(*key))

    def _silence(self, group: int, seq: int) -> Missing:
        """What is known when rank 0 does not answer."""
        seconds = round(max(0.0, time.monotonic() - self._replica.heard), 1)
        state = Whereabouts.SILENT
        absence = Absence(0, "", 0, state, seconds, "", "nothing that is known", "")
        text = (
            f"rank 0 does not answer; it was heard of {seconds:.1f} s ago: its host is "
            "silent, it is stopped, or its interpreter is stuck"
        )
        return Missing(group, seq, [0], [absence], text)

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
        answer = answers[0] if answers else self._silence(future.group, future.seq)
        return CollectiveTimeoutError(
            explain(answer),
            missing=answer.ranks,
            timeout=timeout,
            report=answer.absences,
            op=future.operation.name,
            seq=future.seq,
            site=future.site,
            group=future.group_name,
            future=future,
        )


def explain(answer: Missing) -> str:
    """Say who is missing in a call and where they are, or what it waits for."""
    if answer.text:
        return answer.text
    known = "; ".join(str(absence) for absence in answer.absences)
    more = len(answer.ranks) - len(answer.absences)
    if not more:
        return f"missing: {known}"
    return f"{name_ranks(answer.ranks)} missing: {known}; and {more} more"

"""One end of the lane between rank 0 and a replica of its host.

Who has nothing to do looks at the ring for a moment, and then sleeps on its poll,
where the other side's bell wakes it. It says so in its word ``ASLEEP``, a number that
is new for each sleep, and the other side rings once for each.

No wake-up is lost. The sleeper says that it sleeps and then looks at the ring once
more; the writer publishes and then looks whether the sleeper sleeps. x86-64 may let a
look overtake the store before it, and then each could miss what the other has done.
So between the two stands a fence on both sides: taking a lock is one, by the locked
instruction that it comes down to in every CPython.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from zcoll.transport.lane.ring import (
    ASLEEP,
    CONSUMED,
    PUBLISHED,
    WORDS,
    Reader,
    Writer,
)
from zcoll.transport.lane.segment import UnavailableError

if TYPE_CHECKING:
    from zcoll.payload import Buffer
    from zcoll.transport.lane.bell import Ringer
    from zcoll.transport.lane.regions import Reading, Regions
    from zcoll.transport.lane.segment import Segment

LARGE = 16 * 1024  # bytes of a message from which one may need more than LEAST
LEAST = 64 * 1024  # bytes of each direction that are in use from the start
SPACE = 4 * 1024 * 1024  # bytes of each direction at most
_FIRST_RING = 4096  # behind the page of the token and the words
_WORDS_AT = (256, 512)  # of the side that made the segment, and of the other one
SIZE = _FIRST_RING + 2 * SPACE  # bytes of a segment; most of it is not in use

IDLE = 5.0  # seconds without a large message after which its memory is given back
_WANTS_ROOM = 1  # bit of ASLEEP: wake me also when you have read something

_lock = threading.Lock()


def fence() -> None:
    """Let no look that follows overtake a store that came before."""
    with _lock:
        pass


class Lane:
    """Messages to and from the other side, in order, each whole.

    Args:
        segment: Shared with the other side, and closed with the lane.
        ringer: To wake the other side; closed with the lane.
        made: Whether this side has made the segment.
        regions: At rank 0: where it writes what all replicas get, if there is room.
        read: At a replica: rank 0's segment for that; closed with the lane.

    Attributes:
        backlog: Messages that wait for room in the ring.
        rings: Whether something has been sent since the last :meth:`ring`.
        claim: What the other side claims of the regions, if there are any.

    Raises:
        UnavailableError: There is no room for it.
    """

    def __init__(
        self,
        segment: Segment,
        ringer: Ringer,
        *,
        made: bool,
        regions: Regions | None = None,
        read: Segment | None = None,
    ) -> None:
        self.backlog: deque[list[Buffer]] = deque()
        self.rings = False
        self._segment = segment
        self._ringer = ringer
        first, second = (0, 1) if made else (1, 0)
        starts = [_FIRST_RING, _FIRST_RING + SPACE]
        base = starts[first]
        if not segment.reserve(base, LEAST):
            raise UnavailableError("no room for shared memory")
        memory = segment.memory
        words = [memory[at : at + 8 * WORDS].cast("Q") for at in _WORDS_AT]
        spaces = [memory[at : at + SPACE] for at in starts]
        # What is lent must not be taken for memory that belongs to the receiver.
        read_only = spaces[second].toreadonly()
        self._own, self._other = words[first], words[second]
        self._views = [*words, *spaces, read_only]
        self._writer = Writer(
            self._own,
            self._other,
            spaces[first],
            LEAST,
            lambda start, size: segment.reserve(base + start, size),
            lambda start, size: segment.release(base + start, size),
        )
        shared = memoryview(b"") if read is None else read.memory
        self._reader = Reader(self._own, self._other, read_only, shared)
        self._read = read
        self.claim = 0 if regions is None else regions.next_claim()
        self._reading: Reading | None = None
        if regions is not None:
            self._reading = regions.join(self.claim, self._writer, self._other)
        self._sleeps = 0
        self._rung = 0  # the other side's sleep for which it has been rung last
        self._consumed = 0  # when there was last no room for the backlog
        self._large = False  # whether a large message was sent since the last tick
        self._large_at = 0.0

    # --- sending ----------------------------------------------------------

    def send(self, frames: list[Buffer]) -> None:
        """Send a message; it waits here while the ring has no room.

        Raises:
            FullError: The lane cannot carry it; see :meth:`take_back`.
            ProtocolError: The other side's words make no sense.
        """
        self.backlog.append(frames)
        self.flush()

    def flush(self) -> None:
        """Write what has waited for room.

        Raises:
            FullError, ProtocolError: As for :meth:`send`.
        """
        while self.backlog:
            self._consumed = self._other[CONSUMED]
            self.rings = True  # also for what only takes the reader back to the start
            if not (self._reading or self._writer).write(self.backlog[0]):
                break
            size = sum(map(len, self.backlog[0]))
            self._large = self._large or size > LARGE
            self.backlog.popleft()

    def use_no_regions(self) -> None:
        """The other side cannot read them."""
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def ring(self) -> None:
        """Wake the other side, if it sleeps and has been sent something.

        Between what was sent and this there must be a :func:`fence`.
        """
        self.rings = False
        self._wake_other(~0)

    def _wake_other(self, reasons: int) -> None:
        asleep = self._other[ASLEEP]
        if asleep & reasons and asleep != self._rung:
            self._rung = asleep
            self._ringer.ring()

    def take_back(self) -> list[list[Buffer]]:
        """Take back the messages that still wait for room, in order."""
        messages = list(self.backlog)
        self.backlog.clear()
        return messages

    def tick(self, now: float) -> None:
        """Time has passed: give back memory that is not needed any more.

        Raises:
            ProtocolError: The other side's words make no sense.
        """
        if self._large:
            self._large, self._large_at = False, now
        elif self._writer.reserved > LEAST and now - self._large_at >= IDLE:
            self.rings = self._writer.shrink() or self.rings

    # --- receiving --------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """Whether there is a message to take, or room for one that waits."""
        return bool(self._other[PUBLISHED] != self._reader.count) or (
            bool(self.backlog) and bool(self._other[CONSUMED] != self._consumed)
        )

    @property
    def unread(self) -> int:
        """Messages that can be taken now."""
        return int(self._other[PUBLISHED]) - self._reader.count

    def take(self) -> list[Buffer] | None:
        """Take the next message, or None.

        Its second frame is lent, and cannot be written: it must not be referred to
        any more when the next one is taken.

        Raises:
            ProtocolError: What stands in the ring is no message.
        """
        reader, read = self._reader, False
        while True:
            if reader.done():
                read = True
                self._wake_other(_WANTS_ROOM)
            frames = reader.read()
            if frames is None:
                if read:
                    fence()
                    self._wake_other(_WANTS_ROOM)
                return None
            if frames[0]:
                return frames

    # --- sleeping ---------------------------------------------------------

    def lie_down(self) -> None:
        """Say that this side sleeps. Then: :func:`fence`, and look at ``waiting``."""
        self._sleeps += 2
        self._own[ASLEEP] = self._sleeps | (_WANTS_ROOM if self.backlog else 0)

    def get_up(self) -> None:
        """Say that this side is awake."""
        self._own[ASLEEP] = 0

    # --- the end ----------------------------------------------------------

    def close(self) -> None:
        """Let go of the memory. What the other side has not read it can still read.

        It writes nothing, so it is right in a forked child too.
        """
        self.backlog.clear()
        self.use_no_regions()
        self._reader.take_back()
        for view in self._views:
            view.release()
        if self._read is not None:
            self._read.close()
        self._segment.close()
        self._ringer.close()

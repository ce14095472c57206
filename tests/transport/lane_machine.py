"""A machine with two processors and shared memory, of which every step is chosen.

The two sides of a lane run on it, each in a thread, one at a time. Each look at the
memory, each store to it, and each call of the system is a step. Before each of them a
seeded die says which side goes on, and which stores have become visible: as on x86-64,
the other side may see a store late, but those of one side in their order, and all of
them once it has passed a fence or called the system. A side can be made to die at any
step; what it has stored before stays.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 20.0  # seconds for a thread to get its turn
GARBAGE = 0xEE  # what stands in memory that was given back


class Died(BaseException):
    """A side's process ends here."""


class Machine:
    """The two processors.

    Args:
        seed: Of all that is chosen.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.switching = self.chance.choice([0.02, 0.1, 0.5])
        self.retiring = self.chance.choice([0.02, 0.2, 0.9])
        self.processors = [Processor(self), Processor(self)]
        self.processors[0].other, self.processors[1].other = self.processors[::-1]
        self._threads: dict[int | None, Processor] = {}

    def run(self, sides: list[Callable[[], None]]) -> None:
        """Let both sides live, each to its end."""
        threads = []
        for processor, side in zip(self.processors, sides, strict=True):
            thread = threading.Thread(target=processor.live, args=[side], daemon=True)
            thread.start()
            self._threads[thread.ident] = processor
            threads.append(thread)
        self.chance.choice(self.processors).go_on()
        for thread in threads:
            thread.join(2 * LIMIT)
            assert not thread.is_alive()
        for processor in self.processors:
            if processor.error is not None:
                raise processor.error

    def fence(self) -> None:
        """What the thread that asks for it has stored is visible from here on."""
        processor = self._threads.get(threading.get_ident())
        if processor is not None:
            processor.retire_all()


class Processor:
    """One side's.

    Attributes:
        steps: That it has taken.
        last: The step at which the side dies.
        rung: Whether its bell has been rung.
        over: Whether the side has come to its end, or died.
        error: What it ended with.
    """

    other: Processor

    def __init__(self, machine: Machine) -> None:
        self.steps = 0
        self.last: int | None = None
        self.rung = self.over = False
        self.error: BaseException | None = None
        self._machine = machine
        self._stores: deque[tuple[Any, Any, Any]] = deque()
        self._asleep = False
        self._turn = threading.Semaphore(0)

    def live(self, side: Callable[[], None]) -> None:
        """Do what the side does, in this thread."""
        self._wait_for_turn()
        try:
            side()
        except Died:
            pass
        except BaseException as error:
            self.error = error
        self.retire_all()
        self.over = True
        self.other.ring()  # the end of a connection wakes whoever polls it
        if not self.other.over:
            self.other.go_on()

    # --- steps ------------------------------------------------------------

    def step(self) -> None:
        """Something is about to be done that the other side may notice."""
        if self.steps == self.last:
            raise Died
        self.steps += 1
        chance = self._machine.chance
        for processor in (self, self.other):
            while processor._stores and chance.random() < self._machine.retiring:
                processor._retire()
        if chance.random() < self._machine.switching and self.other.awake:
            self._hand_over()

    def store(self, memory: Any, key: int | slice, value: Any) -> None:
        """Store something, which the other side sees some time later."""
        self.step()
        self._stores.append((memory, key, value))

    def call_system(self) -> None:
        """Call the system, which is a fence too."""
        self.step()
        self.retire_all()

    def retire_all(self) -> None:
        """Let everything be seen that was stored."""
        while self._stores:
            self._retire()

    def _retire(self) -> None:
        memory, key, value = self._stores.popleft()
        memory[key] = value

    # --- sleeping ---------------------------------------------------------

    @property
    def awake(self) -> bool:
        """Whether the side can go on."""
        return not self.over and (self.rung or not self._asleep)

    def ring(self) -> None:
        """Wake the side, now or the next time that it sleeps."""
        self.rung = True

    def poll(self, is_ready: Callable[[], bool]) -> None:
        """Sleep until the bell rings, unless there is something to do already."""
        self.call_system()
        if self.rung or is_ready():
            return
        self._asleep = True
        assert self.other.awake, "a wake-up was lost: both sides sleep"
        self._hand_over()
        self._asleep = False

    # --- turns ------------------------------------------------------------

    def go_on(self) -> None:
        """It is this side's turn."""
        self._turn.release()

    def _hand_over(self) -> None:
        self.other.go_on()
        self._wait_for_turn()

    def _wait_for_turn(self) -> None:
        assert self._turn.acquire(timeout=LIMIT), "the other side does not end"


class Memory:
    """The memory of a segment, or a part of it, as one side sees it.

    Args:
        processor: The side's.
        memory: What it is.
        reserved: The bytes of the segment that can be stored to.
        start: Where in the segment it begins.
    """

    def __init__(
        self,
        processor: Processor,
        memory: memoryview,
        reserved: bytearray,
        start: int = 0,
    ) -> None:
        self._processor = processor
        self._memory = memory
        self._reserved = reserved
        self._start = start

    def part(self, memory: memoryview, start: int) -> Memory:
        return Memory(self._processor, memory, self._reserved, self._start + start)

    def cast(self, form: Any) -> Memory:
        return self.part(self._memory.cast(form), 0)

    def toreadonly(self) -> memoryview:
        return self._memory.toreadonly()  # who reads it has looked at the words before

    def release(self) -> None:
        self._processor.call_system()
        self._memory.release()

    def __len__(self) -> int:
        return len(self._memory)

    def __getitem__(self, key: int | slice) -> Any:
        if isinstance(key, slice):
            return self.part(self._memory[key], key.start)
        self._processor.step()
        return self._memory[key]

    def __setitem__(self, key: int | slice, value: Any) -> None:
        if isinstance(key, int):
            self._processor.store(self._memory, key, value)
            return
        start, end = self._start + key.start, self._start + key.stop
        assert all(self._reserved[start:end]), "a SIGBUS"
        half = (key.start + key.stop) // 2  # who dies may leave a part of it
        self._processor.store(
            self._memory, slice(key.start, half), bytes(value[: half - key.start])
        )
        self._processor.store(
            self._memory, slice(half, key.stop), bytes(value[half - key.start :])
        )


class Segment:
    """In place of the memory that a lane is in, for one of its sides.

    Args:
        processor: The side's.
        memory: All of it, shared with the other side's.
        reserved: As many bytes, which say what is reserved; shared too.
        refuse: Whether there is no room now.
    """

    def __init__(
        self,
        processor: Processor,
        memory: bytearray,
        reserved: bytearray,
        refuse: Callable[[], bool],
    ) -> None:
        self.memory = Memory(processor, memoryview(memory), reserved)
        self._processor = processor
        self._all = memory
        self._reserved = reserved
        self._refuse = refuse

    def reserve(self, start: int, size: int) -> bool:
        self._processor.call_system()
        if self._refuse():
            return False
        self._reserved[start : start + size] = b"\1" * size
        return True

    def release(self, start: int, size: int) -> None:
        self._processor.call_system()
        self._all[start : start + size] = bytes([GARBAGE]) * size
        self._reserved[start : start + size] = bytes(size)

    def close(self) -> None:
        self.memory.release()

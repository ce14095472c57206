"""What stands for a process: a machine, the program on it, and an engine's loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.simulated_plan import decode, encode_error

from zcoll.errors import ClosedError
from zcoll.protocol.events import (
    Contribution,
    Deliver,
    Fail,
    Identity,
    Joined,
    Missing,
    Note,
    Refused,
    TellStack,
    Timing,
)
from zcoll.protocol.replica import Phase, Replica
from zcoll.wire import pack

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulation.simulated_group import Group
    from simulation.simulated_network import Frames
    from simulation.simulated_plan import PlannedCall

    from zcoll.errors import CollectiveError, GroupError, ZcollError
    from zcoll.protocol.events import ReplicaInstruction
    from zcoll.protocol.link import Link
    from zcoll.wire import Message

    Ending = list[str] | CollectiveError | GroupError | None

TIMING = Timing(beacon_interval=0.3, hello_interval=0.3, reconnect_window=2.0)
TICK = 0.1  # virtual seconds between an engine's looks at the clock
JOIN_LIMIT = 8.0  # virtual seconds that a replica waits for the others
DRAIN_LIMIT = 2.0  # virtual seconds without progress that a leaving replica waits


class Node:
    """One replica's process.

    Attributes:
        identity: Who it says it is.
        endings: How each call ended, by its number.
        made: How many calls it has made.
        leaves_after: After how many calls it leaves without a teardown, or None.
        hurries: Whether it then leaves without waiting for anything.
        stays: How long it does something else after its last call, in virtual seconds.
        dead: Whether its process is gone.
        stopped: Whether its process does not run for now.
        closed: Whether it has left and closed everything.
        gave_up: Whether it closed although something was left to deliver.
        joined: Whether its group has been complete.
        ended_at: When the last of its calls has ended.
        left_at: When it began to leave, in virtual seconds.
        closed_at: When it had closed.
        reports: How many answers to the question who is missing it has got.
    """

    def __init__(self, rank: int, group: Group, link_end: Link) -> None:
        self.rank = rank
        self.group = group
        self.identity = _identity(rank, group)
        self.replica = Replica(self.identity, "job", TIMING, link_end)
        self.link = link_end
        self.plan = list(group.plan)
        self.endings: dict[int, Ending] = {}
        self.made = 0
        self.leaves_after: int | None = None
        self.hurries = False
        self.stays = 0.0
        self.refusal: ZcollError | None = None
        self.dead = self.stopped = self.closed = self.gave_up = self.joined = False
        self.born_at = group.clock.now
        self.ended_at = self.left_at = self.closed_at = 0.0
        self.reports = 0
        self._leaving = False
        self._blocked_on = 0
        self._scheduled = False
        self._held_up: list[Callable[[], None]] = []  # while it was stopped
        self._progress: tuple[int, float] = (-1, 0.0)

    @property
    def running(self) -> bool:
        """Whether its process does anything at the moment."""
        return not (self.dead or self.stopped or self.closed)

    @property
    def now(self) -> float:
        """The time."""
        return self.group.clock.now

    # --- the process --------------------------------------------------------------

    def when_awake(self, job: Callable[[], None]) -> None:
        """Do this now, or when the process runs again, if it ever does."""
        if self.running:
            job()
        elif self.stopped and not self.dead:
            self._held_up.append(job)

    def stop(self, seconds: float) -> None:
        """Stop the process for a while."""
        self.group.trace(f"{self.rank} is stopped for {seconds:.2f} s")
        self.stopped = True
        self.group.clock.after(seconds, self._resume)

    def _resume(self) -> None:
        if self.dead:
            return
        self.group.trace(f"{self.rank} runs again")
        self.stopped = False
        if self.group.random.random() < 0.5:
            self._step()  # it was stopped after its look at what has arrived
        jobs, self._held_up = self._held_up, []
        for job in jobs:
            self.when_awake(job)

    def kill(self) -> None:
        """End the process at once."""
        self.group.trace(f"{self.rank} is killed")
        self.dead = True
        self.disconnect()

    def disconnect(self, linger: float = 0.0) -> None:
        """Lose the connections of a process that has ended."""
        raise NotImplementedError

    # --- the program --------------------------------------------------------------

    def think(self) -> None:
        """Go on with the program after a while."""
        if self.joined and not self._scheduled:
            self._scheduled = True
            pause = self.group.random.choice((0.0, 0.001, 0.02, 0.2))
            self.group.clock.after(pause, lambda: self.when_awake(self._go_on))

    def _go_on(self) -> None:
        self._scheduled = False
        in_flight = self.made - len(self.endings)
        if self.made == self.leaves_after:
            self.leave("it was planned")
            if self.hurries:
                self.replica.leave("it was planned")
        elif self.made < len(self.plan):
            if in_flight < self.group.max_pending:
                self._make_call(self.plan[self.made])
        elif not in_flight:
            self.group.clock.after(self.stays, lambda: self.when_awake(self._finish))
        self.pump()

    def _finish(self) -> None:
        self.leave("")
        self.pump()

    def _make_call(self, planned: PlannedCall) -> None:
        self.made += 1
        operation, own = planned.operation, planned.inputs[self.rank]
        payload = error = None
        if operation.contributes(self.rank, planned.root):
            if own.defect == "encode":
                error = encode_error(self.rank)
            else:
                payload = own.encode()
        self.group.trace(f"{self.rank} calls {self.made}: {operation.name}")
        made = Contribution(
            0, operation, planned.root, "", planned.site, payload, error
        )
        seq = self.replica.calling.call(made)
        assert seq == self.made
        if self.group.random.random() < 0.5 and seq not in self.endings:
            self._blocked_on = seq
            if self.group.random.random() < 0.1:
                self.replica.ask(0, seq)
        else:
            self.think()

    def abort(self) -> bool:
        """Abort the group, if it is complete and not left; tell whether."""
        if not self.running or self.replica.phase is not Phase.JOINED:
            return False
        self.group.trace(f"{self.rank} aborts")
        self.replica.abort("it was planned")
        self.pump()
        return True

    def leave(self, reason: str) -> None:
        """Leave the group, as close() does."""
        if not self._leaving:
            self.group.trace(f"{self.rank} leaves: {reason}")
            self._leaving = True
            self.left_at = self.now
            self.replica.leave(reason)

    def close(self) -> None:
        """Nothing holds this replica any longer."""
        self.group.trace(f"{self.rank} is gone")
        self.closed, self.closed_at = True, self.now
        for seq in range(1, self.made + 1):
            self.endings.setdefault(seq, ClosedError("it has left"))
        self.disconnect()

    def _ended(self, seq: int, ending: Ending) -> None:
        assert 1 <= seq <= self.made + 1, f"call {seq} of {self.rank} was not made"
        assert seq not in self.endings, f"call {seq} of {self.rank} ended twice"
        self.group.trace(f"{self.rank} has {seq}: {ending!r:.60}")
        self.endings[seq], self.ended_at = ending, self.now
        if self._blocked_on in (0, seq):
            self._blocked_on = 0
            self.think()

    # --- the engine ---------------------------------------------------------------

    def tick(self) -> None:
        """Time passes, for as long as the process is there."""
        if not (self.dead or self.closed):
            if self.running:
                self._step()
            self.group.clock.after(TICK, self.tick)

    def _step(self) -> None:
        self.replica.tick(self.now)
        if not self.joined and self.now > self.born_at + JOIN_LIMIT:
            self.leave("the group is not complete")
        self.pump()
        if self._leaving and self.running:
            self._drain()

    def _drain(self) -> None:
        """Give up, as an engine does, when nothing has moved for a while."""
        progress = self.progress()
        if progress != self._progress[0]:
            self._progress = progress, self.now
        elif self.now - self._progress[1] > DRAIN_LIMIT:
            self.replica.leave("")
            self.pump()
            if self.running:
                self.group.trace(f"{self.rank} gives up")
                self.gave_up = True
                self.close()

    def progress(self) -> int:
        """What grows as long as something is delivered."""
        raise NotImplementedError

    def pump(self) -> None:
        """Carry out what the machine says until it says nothing more."""
        raise NotImplementedError

    def inform(self, instruction: ReplicaInstruction) -> None:
        """Take in what the machine says to its program."""
        if isinstance(instruction, Deliver):
            payload = instruction.payload
            value = None if payload is None else decode(payload).value
            self._ended(instruction.seq, value)
        elif isinstance(instruction, Fail):
            self._ended(instruction.seq, instruction.error)
        elif isinstance(instruction, Joined):
            assert not self.joined
            self.joined = True
            self.think()
        elif isinstance(instruction, Refused):
            self.refusal = instruction.error
            self.close()
        elif isinstance(instruction, Missing):
            assert instruction.ranks == sorted(instruction.ranks)
            self.reports += 1
        elif isinstance(instruction, TellStack):
            self.replica.tell("plan.py:1 main", "the stack", 0.5)
        else:
            assert isinstance(instruction, Note)
            self.group.trace(f"{self.rank} notes: {instruction.text}")


def freeze(message: Message) -> Frames:
    """A message as it is on the wire."""
    return [bytes(frame) for frame in pack(message)]


def _identity(rank: int, group: Group) -> Identity:
    """A process that no other one is taken for."""
    group.processes += 1
    pid, incarnation = 1000 + group.processes, 5000 + group.processes
    return Identity(rank, group.size, "host", pid, incarnation, "1", "3")

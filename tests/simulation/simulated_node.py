"""One replica: its machine, the program on it, and what stands for an engine's loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from programs.play import never
from programs.program import Call, Close, Collect, Leave, Regroup
from simulation.simulated_plan import contribution, read
from simulation.simulated_process import Process

from zcoll.engine.functions import encode_function
from zcoll.errors import ClosedError
from zcoll.operations import ALLGATHER, BARRIER
from zcoll.payload import Payload
from zcoll.protocol.events import (
    Contribution,
    Deliver,
    Fail,
    Identity,
    Joined,
    Missing,
    Note,
    Refused,
    TellFunction,
    TellStack,
    Timing,
)
from zcoll.protocol.replica import Phase, Replica
from zcoll.wire import AUTO_RANK, pack

if TYPE_CHECKING:
    from collections.abc import Callable

    from programs.program import Step
    from simulation.simulated_group import Group
    from simulation.simulated_network import Frames

    from zcoll.errors import ZcollError
    from zcoll.protocol.events import ReplicaInstruction
    from zcoll.protocol.link import Link
    from zcoll.wire import Message

Key = tuple[int, int]  # a call: its group, and its number there

TIMING = Timing(beacon_interval=0.3, hello_interval=0.3, reconnect_window=2.0)
TICK = 0.1  # virtual seconds between an engine's looks at the clock
JOIN_LIMIT = 8.0  # virtual seconds that a replica waits for the others
DRAIN_LIMIT = 2.0  # virtual seconds without progress that a leaving replica waits


class Node(Process):
    """One replica's process.

    Attributes:
        identity: Who it says it is.
        order: The steps of its program, by their numbers.
        endings: How each step's call ended, by the step's number.
        seqs: The group and number of each step's call.
        functions: The reduce function of each call under way.
        made: How many steps it has begun.
        leaves_after: After how many steps it leaves without a teardown, or None.
        hurries: Whether it then leaves without waiting for anything.
        mistakes: The step in which it makes another call than the others, or None.
        stays: How long it does something else after its last call, in virtual seconds.
        gave_up: Whether it closed although something was left to deliver.
        joined: Whether its group has been complete.
        ended_at: When the last of its calls has ended.
        left_at: When it began to leave, in virtual seconds.
        closed_at: When it had closed.
        reports: How many answers to the question who is missing it has got.
    """

    def __init__(self, rank: int, group: Group, link_end: Link) -> None:
        super().__init__(rank, group)
        self.identity = _identity(rank, group)
        self.replica = Replica(self.identity, "job", TIMING, link_end)
        self.link = link_end
        self.order = group.plan.order(rank, limit=group.max_pending)
        self.endings: dict[int, Any] = {}
        self.seqs: dict[int, Key] = {}
        self.functions: dict[Key, Callable[[Any, Any], Any]] = {}
        self.made = 0
        self.leaves_after: int | None = None
        self.hurries = False
        self.mistakes: int | None = None
        self.stays = 0.0
        self.refusal: ZcollError | None = None
        self.gave_up = self.joined = False
        self.born_at = group.clock.now
        self.ended_at = self.left_at = self.closed_at = 0.0
        self.reports = 0
        self._groups = {0: 0}  # the numbers of the program's teams in the protocol
        self._calls: dict[Key, int] = {}  # those under way, and their steps
        self._leaving = False
        self._blocked_on: Key | None = None
        self._scheduled = False
        self._progress: tuple[int, float] = (-1, 0.0)

    # --- the program --------------------------------------------------------------

    def think(self) -> None:
        """Go on with the program after a while."""
        if self.joined and not self._scheduled:
            self._scheduled = True
            pause = self.group.random.choice((0.0, 0.001, 0.02, 0.2))
            self.group.clock.after(pause, lambda: self.when_awake(self._go_on))

    def _go_on(self) -> None:
        self._scheduled = False
        if self.made == self.leaves_after:
            self.leave("it was planned")
            if self.hurries:
                self.replica.leave("it was planned")
        elif self.made < len(self.order):
            number = self.order[self.made]
            step = self.group.plan.steps[number]
            if not self._is_full(step):
                self.made += 1
                self._begin(number, step)
        elif not self._calls:
            self.group.clock.after(self.stays, lambda: self.when_awake(self._finish))
        self.pump()

    def _is_full(self, step: Step) -> bool:
        """Whether too many calls of a step's group are in flight."""
        group = self._groups.get(step.team.number)
        in_flight = sum(own == group for own, _ in self._calls)
        return in_flight >= self.group.max_pending

    def _finish(self) -> None:
        self.leave("")
        self.pump()

    def _begin(self, number: int, step: Step) -> None:
        """Do a step, unless the group for it has not come about."""
        group = self._groups.get(step.team.number)
        if group is None:
            self.think()
        elif isinstance(step, Leave):
            self.group.trace(f"{self.rank} leaves group {group}")
            self.replica.calling.leave(group)
            self.think()
        elif isinstance(step, Collect):
            self._wait_for(self.group.random.choice([None, *self._calls]))
        elif isinstance(step, Close):
            self._close_group(number, step, group)
        else:
            waits = isinstance(step, Regroup) or (
                isinstance(step, Call) and step.blocking
            )
            key = self._make_call(number, step, group, waits=waits)
            self._wait_for(key if waits else None)

    def _close_group(self, number: int, step: Close, group: int) -> None:
        """Close a group, once its calls and those of groups below have ended."""
        waiting = [key for key in self._calls if key[0] == group or not group]
        if waiting:
            self.made -= 1
            self._wait_for(waiting[0])
        elif step.together:
            self._wait_for(self._make_call(number, step, group, waits=True))
        else:
            self.replica.calling.close(group)
            self.think()

    def _wait_for(self, key: Key | None) -> None:
        """Go on when this call has ended, or soon."""
        if key in self._calls:
            self._blocked_on = key
        else:
            self.think()

    def _make_call(self, number: int, step: Step, group: int, *, waits: bool) -> Key:
        rank = step.rank_of(self.rank)
        assert rank is not None
        fold: Callable[[Any, Any], Any] = never
        if isinstance(step, Call) and rank == step.active[0]:
            fold = step.fold
        made = contribution(number, step, rank, group, fold)
        if number == self.mistakes:
            made = _mistake(made)
        self.group.trace(f"{self.rank} calls in group {group}: {made.operation.name}")
        key = (group, self._next_seq(group))
        self._calls[key], self.seqs[number], self.functions[key] = number, key, fold
        if waits and self.group.random.random() < 0.8 and self.go_short_way(made, key):
            self.group.counts["short way"] += 1
            return key
        assert self.replica.calling.call(made) == key[1]
        if self.group.random.random() < 0.05:
            self.replica.ask(*key)
        return key

    def go_short_way(self, made: Contribution, key: Key) -> bool:
        """Make a call the short way, if it can go that way; tell whether it does."""
        raise NotImplementedError

    def leave_short_way(self) -> None:
        """Something else comes: the call goes the long way, if one is under way."""
        raise NotImplementedError

    def _next_seq(self, group: int) -> int:
        return 1 + sum(own == group for own, _ in self.seqs.values())

    def abort(self) -> bool:
        """Abort the group, if it is complete and not left; tell whether."""
        if not self.running or self.replica.phase is not Phase.JOINED:
            return False
        self.group.trace(f"{self.rank} aborts")
        self.leave_short_way()
        self.replica.abort("it was planned")
        self.pump()
        return True

    def leave(self, reason: str) -> None:
        """Leave the group, as close() does."""
        if not self._leaving:
            self.group.trace(f"{self.rank} leaves: {reason}")
            self._leaving = True
            self.left_at = self.now
            self.leave_short_way()
            self.replica.leave(reason)

    def close(self) -> None:
        """Nothing holds this replica any longer."""
        self.group.trace(f"{self.rank} is gone")
        self.closed, self.closed_at = True, self.now
        for number in self._calls.values():
            self.endings[number] = ClosedError("it has left")
        self.disconnect()

    # --- how calls end ------------------------------------------------------------

    def deliver(self, key: Key, payload: Payload | None) -> None:
        step = self.group.plan.steps[self._calls[key]]
        value = read(step, payload)
        if isinstance(step, Regroup):
            value = self._enter(step, *value)
        self._ended(key, value)
        if isinstance(step, Close) and step.team.number:
            self.replica.calling.close(key[0])

    def _enter(
        self, step: Regroup, number: int | None, name: str, members: list[int]
    ) -> tuple[int, int] | None:
        """A group has been made, with this replica or without it."""
        team = step.team_of(self.rank)
        if number is None:
            return None
        assert step.how in name
        if team is not None:
            self._groups[team.number] = number
        return members.index(self.rank), len(members)

    def _ended(self, key: Key, ending: Any) -> None:
        number = self._calls.pop(key)
        assert number not in self.endings, f"step {number} of {self.rank} ended twice"
        self.group.trace(f"{self.rank} has {key}: {ending!r:.60}")
        self.endings[number], self.ended_at = ending, self.now
        self.functions.pop(key)
        if self._blocked_on in (None, key):
            self._blocked_on = None
            self.think()

    # --- the engine ---------------------------------------------------------------

    def tick(self) -> None:
        """Time passes, for as long as the process is there."""
        if not (self.dead or self.closed):
            if self.running:
                self.step()
            self.group.clock.after(TICK, self.tick)

    def step(self) -> None:
        self.leave_short_way()
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
            self.deliver((instruction.group, instruction.seq), instruction.payload)
        elif isinstance(instruction, Fail):
            self._ended((instruction.group, instruction.seq), instruction.error)
        elif isinstance(instruction, Joined):
            assert not self.joined
            assert self.replica.identity.rank == self.rank
            self.joined = True
            self.think()
        elif isinstance(instruction, Refused):
            self.refusal = instruction.error
            self.close()
        elif isinstance(instruction, Missing):
            assert instruction.ranks == sorted(set(instruction.ranks))
            self.reports += 1
        elif isinstance(instruction, TellStack):
            self.replica.tell("plan.py:1 main", "the stack", 0.5)
        elif isinstance(instruction, TellFunction):
            self._send_function((instruction.group, instruction.seq))
        else:
            assert isinstance(instruction, Note)
            self.group.trace(f"{self.rank} notes: {instruction.text}")

    def _send_function(self, key: Key) -> None:
        """Rank 0 needs a reduce function: pickling it takes a while."""
        if key not in self.functions:
            return
        function = encode_function(self.functions[key], self.rank)

        def send() -> None:
            self.replica.calling.equip(*key, function)
            self.pump()

        delay = self.group.random.choice((0.0, 0.01))
        self.group.clock.after(delay, lambda: self.when_awake(send))


def freeze(message: Message) -> Frames:
    """A message as it is on the wire."""
    return [bytes(frame) for frame in pack(message)]


def _mistake(made: Contribution) -> Contribution:
    """Another call than the others make."""
    if made.operation is BARRIER:
        payload = Payload([b"N."], stable=True)  # None, pickled
        return Contribution(made.group, ALLGATHER, 0, "", made.site, payload)
    return Contribution(made.group, BARRIER, 0, "", made.site, None)


def _identity(rank: int, group: Group) -> Identity:
    """A process that no other one is taken for.

    Those that are given their ranks have process numbers in the order of the ranks
    that are planned for them.
    """
    group.processes += 1
    pid, incarnation = 1000 * (rank + 1) + group.processes, 5000 + group.processes
    told = AUTO_RANK if rank in group.auto else rank
    return Identity(told, group.size, "host", pid, incarnation, "1", "3")

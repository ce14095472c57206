"""A replica's run of a program, and the check of what came of it."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from programs import model
from programs.program import Call, Close, Collect, Failed, Leave, Program, Regroup
from values import same

import zcoll

if TYPE_CHECKING:
    from collections.abc import Iterable

    from programs.program import Step

LIMIT = 20.0  # seconds that one call may take


class Player:
    """Runs a program on one replica.

    Args:
        program: The program.
        comm: The replica's communicator of group 0.
    """

    def __init__(self, program: Program, comm: zcoll.Communicator) -> None:
        self._program = program
        self._replica = comm.replica_rank
        self._comms = {0: comm}
        self._random = random.Random(program.seed * 100 + comm.replica_rank)
        self._futures: dict[int, zcoll.Future[Any]] = {}
        self._endings: dict[int, Any] = {}

    def play(self) -> dict[int, Any]:
        """Run it, and return what came of each step, by the step's number.

        Groups that the program does not close are closed by being dropped: those who
        have left group 0 may go on in others, so nobody tears it down.
        """
        for number in self._program.order(self._replica):
            self._do(number, self._program.steps[number])
        self._collect(list(self._futures))
        return self._endings

    def check(self) -> int:
        """Run it, and compare with the model; return how many results there were."""
        endings = self.play()
        compare(self._program, self._replica, endings)
        return len(endings)

    def _do(self, number: int, step: Step) -> None:
        comm = self._comms[step.team.number]
        if isinstance(step, Call):
            self._call(comm, number, step)
        elif isinstance(step, Regroup):
            self._endings[number] = self._regroup(comm, step)
        elif isinstance(step, Leave):
            comm.leave()
        elif isinstance(step, Collect):
            pending = list(self._futures)
            self._collect(self._random.sample(pending, (len(pending) + 1) // 2))
        elif isinstance(step, Close):
            self._collect(list(self._futures))
            if step.together:
                comm.teardown(timeout=LIMIT)
            else:
                comm.close()

    def _call(self, comm: zcoll.Communicator, number: int, step: Call) -> None:
        rank = comm.replica_rank
        lowest = rank == step.active[0]  # whose function is the one that counts
        positional, named = model.arguments(
            step.operation,
            step.value_of(rank),
            root=step.root,
            fold=step.fold if lowest else never,
            rank=rank,
        )
        tag = f"step {number}"
        if not step.blocking:
            method = getattr(comm, f"{step.operation}_async")
            self._futures[number] = method(*positional, **named, tag=tag)
            return
        method = getattr(comm, step.operation)
        try:
            result = method(*positional, **named, tag=tag, timeout=LIMIT)
        except zcoll.CollectiveError as error:
            result = _failed(error)
        self._endings[number] = result
        assert comm.active_ranks == list(step.active), f"step {number}"

    def _regroup(self, comm: zcoll.Communicator, step: Regroup) -> Any:
        rank = comm.replica_rank
        if step.how == "split":
            new = comm.split(step.colors[rank], step.keys[rank], timeout=LIMIT)
        elif step.how == "dup":
            new = comm.dup(timeout=LIMIT)
        else:
            new = comm.group(step.ranks, timeout=LIMIT)
        team = step.team_of(self._replica)
        if new is None or team is None:
            return new
        self._comms[team.number] = new
        return new.replica_rank, new.num_replicas

    def _collect(self, numbers: list[int]) -> None:
        """Collect results in any order, one by one or on an event loop."""
        self._random.shuffle(numbers)
        futures = {number: self._futures.pop(number) for number in numbers}
        if self._random.random() < 0.2:
            awaited = asyncio.run(_await_all(futures.values()))
            for number, ending in zip(numbers, awaited, strict=True):
                self._note(number, ending)
            return
        for number, future in futures.items():
            try:
                self._note(number, future.result(LIMIT))
            except zcoll.CollectiveError as error:
                self._note(number, error)

    def _note(self, number: int, ending: Any) -> None:
        if isinstance(ending, zcoll.CollectiveError):
            ending = _failed(ending)
        elif isinstance(ending, BaseException):
            raise ending
        self._endings[number] = ending


async def _await_all(futures: Iterable[zcoll.Future[Any]]) -> list[Any]:
    async def wait(future: zcoll.Future[Any]) -> Any:
        return await future

    waiting = asyncio.gather(*map(wait, futures), return_exceptions=True)
    return await asyncio.wait_for(waiting, LIMIT)


def never(a: Any, b: Any) -> Any:
    raise AssertionError("the reduce function of a higher rank was called")


def _failed(error: zcoll.CollectiveError) -> Failed:
    if isinstance(error, zcoll.CollectiveTimeoutError):
        raise error
    return Failed(type(error).__name__, error.rank)


def compare(program: Program, replica: int, endings: dict[int, Any]) -> None:
    """Compare what a replica got with the model."""
    expected = program.expected(replica)
    assert sorted(endings) == sorted(expected)
    for number, right in expected.items():
        got, step = endings[number], program.steps[number]
        if isinstance(right, Failed) and right.rank is None:
            assert isinstance(got, Failed), f"step {number}, {step}: {got!r}"
            assert got.kind == right.kind, f"step {number}, {step}: {got}"
        else:
            assert same(right, got), f"step {number}, {step}: {got!r}, not {right!r}"

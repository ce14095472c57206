"""Random programs on MPI and on zcoll, in the same processes, compared.

    mpiexec -n 3 python -m programs.on_mpi PROGRAMS FIRST-SEED PORT

mpi4py's methods for objects are the oracle. What it does not have is left out:
asynchronous calls wait, nobody leaves, and functions associate.
"""

from __future__ import annotations

import functools
import random
import sys
from typing import TYPE_CHECKING, Any

from mpi4py import MPI
from programs import model
from programs.drawing import Taste, draw_program
from programs.ingredients import ASSOCIATIVE_AND_PURE
from programs.play import Player, compare
from programs.program import Call, Program, Regroup
from values import same

import zcoll

if TYPE_CHECKING:
    from collections.abc import Callable

TASTE = Taste(
    folds=ASSOCIATIVE_AND_PURE, leaves=False, flaws=False, padding=(0, 0, 0, 70_000)
)
COLORS = {"a": 2}  # MPI's are numbers


def main() -> None:
    """Run the programs of some seeds; rank 0 tells how many results were equal."""
    count, first, port = map(int, sys.argv[1:])
    world = MPI.COMM_WORLD
    programs = [
        draw_program(random.Random(seed), world.size, TASTE)
        for seed in range(first, first + count)
    ]
    by_mpi = [play(program, world) for program in programs]
    world.Barrier()  # one waits in MPI by keeping the processor busy
    with zcoll.connect("127.0.0.1", port, world.rank, world.size) as comm:
        for program, endings in zip(programs, by_mpi, strict=True):
            compare(program, world.rank, endings)
            by_zcoll = Player(program, comm.dup()).play()
            compare(program, world.rank, by_zcoll)
            for number, ending in endings.items():
                assert same(ending, by_zcoll[number])
        total = comm.allreduce(sum(map(len, by_mpi)))
    if world.rank == 0:
        sys.stdout.write(f"{count} programs, {total} results are those of MPI\n")


def play(program: Program, world: MPI.Intracomm) -> dict[int, Any]:
    """Run a program on MPI, and return what came of each step."""
    comms: dict[int, MPI.Comm] = {0: world}
    endings: dict[int, Any] = {}
    for number, step in enumerate(program.steps):
        if step.rank_of(world.rank) is None:
            continue
        comm = comms[step.team.number]
        if isinstance(step, Call):
            endings[number] = _call(comm, step)
        elif isinstance(step, Regroup):
            new, team = _regroup(comm, step), step.team_of(world.rank)
            endings[number] = (new.rank, new.size) if new else None
            if team is not None:
                comms[team.number] = new
    for comm in comms.values():
        if comm is not world:
            comm.Free()
    return endings


NAMES: dict[str, str] = {"broadcast": "bcast"}


def _call(comm: Any, step: Call) -> Any:
    if step.operation == "reduce_scatter":  # MPI has it for buffers only
        return functools.reduce(step.fold, comm.alltoall(step.value_of(comm.rank)))
    positional, named = model.arguments(
        step.operation,
        step.value_of(comm.rank),
        root=step.root,
        fold=step.fold,
        rank=comm.rank,
    )
    method: Callable[..., Any] = getattr(
        comm, NAMES.get(step.operation, step.operation)
    )
    if step.operation in model.FOLDING:
        return method(positional[0], op=positional[1], **named)
    return method(*positional, **named)


def _regroup(comm: Any, step: Regroup) -> MPI.Comm:
    new: MPI.Comm
    if step.how == "split":
        color = step.colors[comm.rank]
        number = MPI.UNDEFINED if color is None else COLORS.get(str(color), color)
        new = comm.Split(number, step.keys[comm.rank])
    elif step.how == "dup":
        new = comm.Dup()
    else:
        new = comm.Create(comm.group.Incl(step.ranks))
    return new


if __name__ == "__main__":
    main()

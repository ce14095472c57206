"""What a simulated group is going to do: a random program, as calls of the protocol."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from programs import model
from programs.drawing import draw_program
from programs.program import Call, Close, Program, Regroup, Team

from zcoll import codec, operations
from zcoll.engine.functions import encode_function
from zcoll.errors import CollectiveError, EncodeError
from zcoll.operations import OPERATIONS
from zcoll.payload import Payload
from zcoll.protocol.calling import read_group
from zcoll.protocol.events import Contribution
from zcoll.protocol.plans import pack_color, pack_ranks
from zcoll.wire import parse_fields

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from programs.program import Step

    from zcoll.operations import Operation

BY_NAME = {operation.name: operation for operation in OPERATIONS}


def draw_plan(rng: random.Random, replicas: int) -> Program:
    """Draw a program that ends with a teardown of the group."""
    return end_with_teardown(draw_program(rng, replicas))


def end_with_teardown(program: Program) -> Program:
    """Let everybody who has not left tear group 0 down."""
    world = Team(0, tuple(range(program.size)))
    active = tuple(rank for rank in world.members if rank not in program.leavers)
    steps = (*program.steps, Close(world, active, together=True))
    return dataclasses.replace(program, steps=steps)


def operation_of(step: Step) -> Operation:
    """What is called in a step."""
    if isinstance(step, Call):
        return BY_NAME[step.operation]
    if isinstance(step, Regroup):
        return BY_NAME[step.how]
    return operations.TEARDOWN


def site_of(number: int, step: Step) -> str:
    """Where the program stands in a step."""
    return f"plan.py:{number} {operation_of(step).name}"


def contribution(
    number: int, step: Step, rank: int, group: int, fold: Callable[[Any, Any], Any]
) -> Contribution:
    """One replica's part of a call, as a Communicator makes it.

    Args:
        number: The step's number.
        step: The step.
        rank: The replica's rank in the group.
        group: The group's number.
        fold: The replica's reduce function.
    """
    operation = operation_of(step)
    replica = step.team.members[rank]
    root = step.root if isinstance(step, Call) else 0
    made = Contribution(
        group, operation, root, f"step {number}", site_of(number, step), payload=None
    )
    if operation.contributes(rank, root):
        if isinstance(step, Regroup):
            made.payload = _plan(step, rank)
        else:
            assert isinstance(step, Call)
            made.payload, made.error = _encode(step, rank, replica)
    if operation.folding is not None and rank == 0 and replica:
        made.function = encode_function(fold, replica)
    return made


def _plan(step: Regroup, rank: int) -> Payload:
    if step.how == "split":
        return Payload([pack_color(step.colors[rank], step.keys[rank])], stable=True)
    return Payload([pack_ranks(list(step.ranks))], stable=True)


def _encode(
    step: Call, rank: int, replica: int
) -> tuple[Payload | None, CollectiveError | None]:
    value, size = step.value_of(rank), len(step.team.members)
    if step.operation in model.LISTING and len(value) != size:
        text = f"{len(value)} items for {size} replicas"
        return None, CollectiveError(text, rank=replica)
    try:
        listing = step.operation in model.LISTING
        payload = codec.encode_items(value) if listing else codec.encode(value)
    except TypeError as error:
        return None, EncodeError(str(error), rank=replica)
    payload.snapshot()
    return payload, None


def read(step: Step, payload: Payload | None) -> Any:
    """What a replica gets: a value, or the new group's number and members."""
    if payload is None:
        return None
    if isinstance(step, Regroup):
        return read_group(parse_fields(payload.parts[0]))
    many = operation_of(step).many
    return codec.decode_items(payload) if many else codec.decode(payload)

"""Random programs on real groups, against the model."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from programs import model
from programs.drawing import LARGE_NOW_AND_THEN, draw_program
from programs.ingredients import FLAWS, FOLDS
from programs.play import Player
from programs.program import Call, Leave, Program, Regroup

if TYPE_CHECKING:
    from collections.abc import Callable

    from group import Crew

    import zcoll

PROGRAMS = 200
BATCHES = 10


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_programs_give_what_the_model_says(
    crew_of: Callable[[int], Crew], batch: int
) -> None:
    """Some replicas leave, some calls fail, groups are made and closed."""
    for seed in range(batch, PROGRAMS, BATCHES):
        rng = random.Random(seed)
        program = draw_program(rng, 1 + seed % 5, LARGE_NOW_AND_THEN)

        def task(comm: zcoll.Communicator, program: Program = program) -> int:
            return Player(program, comm.dup()).check()

        try:
            crew_of(program.size).run(task)
        except Exception as error:
            raise AssertionError(f"the program of seed {seed}") from error


def test_programs_are_worth_their_while() -> None:
    """The programs above have in them what they are for."""
    programs = [
        draw_program(random.Random(seed), 1 + seed % 5, LARGE_NOW_AND_THEN)
        for seed in range(PROGRAMS)
    ]
    steps = [step for program in programs for step in program.steps]
    calls = [step for step in steps if isinstance(step, Call)]
    assert {call.operation for call in calls} == set(model.OPERATIONS)
    assert {call.function for call in calls} == set(FOLDS)
    assert {call.flaw for call in calls} == {"", *FLAWS}
    assert {call.blocking for call in calls} == {True, False}
    regroups = [step for step in steps if isinstance(step, Regroup)]
    assert {step.how for step in regroups} == {"split", "dup", "group"}
    assert any(step.leaver == 0 for step in steps if isinstance(step, Leave))
    after_leaving = [c for c in calls if len(c.active) < len(c.team.members)]
    assert {call.operation for call in after_leaving} == set(model.OPERATIONS)
    without_rank_0 = [call for call in calls if 0 not in call.team.members]
    assert {call.operation for call in without_rank_0} == set(model.OPERATIONS)

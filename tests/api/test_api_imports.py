"""What a program loads with zcoll, and what only those who use it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from launch import LIMIT, clean_environment

# Loaded first: what zcoll cannot do without, with whatever these load in turn.
FLOOR = "import concurrent.futures, json, logging, pickle, sys, zmq\n"

SELDOM = {"asyncio", "cloudpickle", "decimal", "fractions", "numpy", "sysconfig"}
FOR_SECRETS = {"hashlib", "hmac", "secrets", "zcoll.security"}
FOR_SEVERAL = {"zcoll.engine.hub", "zcoll.engine.spoke", "zcoll.transport.sockets"}
FOR_ANY = {"socket", "zcoll.engine.alone", "zcoll.protocol.coordinator"}

ALONE = "import zcoll\nzcoll.initialize()\nassert zcoll.allreduce([1]) == [1]\n"


def loaded_by(code: str) -> set[str]:
    """The modules that a program loads beyond those of the floor."""
    program = (
        f"{FLOOR}before = set(sys.modules)\n{code}\nprint(*(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    return set(done.stdout.split())


def test_importing_zcoll_loads_nothing_that_a_program_may_never_need() -> None:
    loaded = loaded_by("import zcoll")
    assert "zcoll.communicator" in loaded
    assert not loaded & (SELDOM | FOR_SECRETS | FOR_SEVERAL | FOR_ANY)
    assert not {name for name in loaded if name.startswith("zcoll.cli")}


def test_one_replica_alone_loads_nothing_of_several() -> None:
    loaded = loaded_by(ALONE)
    assert "zcoll.engine.alone" in loaded
    assert not loaded & (SELDOM | FOR_SECRETS | FOR_SEVERAL)


@pytest.mark.parametrize(
    ("code", "module"),
    [
        ("assert zcoll.allreduce(lambda: 2)() == 2", "cloudpickle"),
        ("zcoll.plain_loads(pickle.dumps(range(3), 5))", "fractions"),
    ],
    ids=["cloudpickle", "plain_loads"],
)
def test_what_is_loaded_on_demand_is_there_when_it_is_needed(
    code: str, module: str
) -> None:
    assert module in loaded_by(f"{ALONE}{code}")

"""What a simulated group is going to call, and what each call must come to.

A value is a list of strings. Reduce functions do not commute, and the expected
result is a plain fold, so a result is right only if every operand was counted
once, in rank order.
"""

from __future__ import annotations

import itertools
import pickle
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zcoll.errors import DecodeError, EncodeError, ReduceError
from zcoll.operations import ALLREDUCE, BARRIER, BROADCAST, TEARDOWN
from zcoll.wire import Payload

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from zcoll.errors import CollectiveError
    from zcoll.operations import Operation

Value = list[str]

ENCODE, DECODE, REDUCE, RESULT = "encode", "decode", "reduce", "result"
DEFECTS = (ENCODE, DECODE, REDUCE, RESULT)  # RESULT: the result cannot be encoded

_GARBAGE = b"no pickle at all" * 2


def append(a: Value, b: Value) -> Value:
    """Change the left operand in place, as the default function does."""
    a += b
    return a


def nest(a: Value, b: Value) -> Value:
    """Write down how the fold was bracketed."""
    return [f"({','.join(a)}|{','.join(b)})"]


def digest(a: Value, b: Value) -> Value:
    """Results that stay small, whatever the operands."""
    return [f"{zlib.crc32(repr((a, b)).encode()):08x}"]


def replace(a: Value, b: Value) -> Value:
    """Keep the right operand only."""
    a[:] = b
    return a


FUNCTIONS: tuple[Callable[[Value, Value], Value], ...] = (append, nest, digest, replace)


class UnreducibleError(Exception):
    """The reduce function's complaint about a defect."""


@dataclass(frozen=True)
class Input:
    """One replica's part of a call."""

    value: Value
    cuts: tuple[int, ...] = ()  # where its pickle is cut into parts
    defect: str = ""

    def encode(self) -> Payload:
        """The payload that goes on its way, in one part or several."""
        if self.defect == DECODE:
            return Payload([_GARBAGE], stable=True)
        data = pickle.dumps(self)
        bounds = [0, *(min(cut, len(data)) for cut in self.cuts), len(data)]
        parts = [data[a:b] for a, b in itertools.pairwise(bounds)]
        return Payload(list(parts), stable=True)


def decode(payload: Payload) -> Input:
    """The input of a payload; an exception for one with the defect DECODE."""
    data = b"".join(payload.parts)
    if data == _GARBAGE:
        raise EOFError("no pickle")
    found: Input = pickle.loads(data)
    return found


@dataclass(frozen=True)
class PlannedCall:
    """One call, the same on every replica."""

    operation: Operation
    root: int
    function: int
    inputs: tuple[Input, ...]  # by rank

    @property
    def site(self) -> str:
        return f"plan.py:{self.function} {self.operation.name}"

    def reduce(self, a: Value, operand: Input) -> Value:
        """Rank 0's reduce function."""
        if operand.defect == REDUCE:
            raise UnreducibleError(operand.value[0])
        return FUNCTIONS[self.function](a, operand.value)

    def expected(self) -> Value | CollectiveError | None:
        """The result or the error that every replica must get."""
        sources = self.operation.contributors(range(len(self.inputs)), self.root)
        for rank in sources:
            if self.inputs[rank].defect == ENCODE:
                return encode_error(rank)
        if not sources:
            return None
        if self.operation.folding is None:
            return self.inputs[self.root].value
        return self._folded()

    def _folded(self) -> Value | CollectiveError:
        result: Value = []
        for rank, operand in enumerate(self.inputs):
            if operand.defect == DECODE:
                return decode_error(rank)
            if rank and operand.defect == REDUCE:
                return reduce_error(operand)
            fresh = Input(list(operand.value))
            result = self.reduce(result, fresh) if rank else fresh.value
        if self.inputs[-1].defect == RESULT:
            return result_error()
        return result


def encode_error(rank: int) -> EncodeError:
    """What a replica says whose value cannot be encoded."""
    return EncodeError("cannot encode", rank=rank, remote_traceback=f"of {rank}")


def decode_error(rank: int) -> DecodeError:
    """What rank 0 says of an operand that cannot be decoded."""
    return DecodeError("cannot decode", rank=rank)


def reduce_error(operand: Input) -> ReduceError:
    """What rank 0 says when the reduce function raises."""
    return ReduceError(f"UnreducibleError: {operand.value[0]}", rank=0)


def result_error() -> EncodeError:
    """What rank 0 says when it cannot encode a result."""
    return EncodeError("cannot encode the result", rank=0)


def draw_plan(random: random.Random, replicas: int) -> list[PlannedCall]:
    """A program of mixed calls, with a teardown as its last."""
    calls = [_draw_call(random, replicas, seq) for seq in range(random.randint(1, 10))]
    nothing = tuple(Input([]) for _ in range(replicas))
    return [*calls, PlannedCall(TEARDOWN, 0, 0, nothing)]


def _draw_call(random: random.Random, replicas: int, seq: int) -> PlannedCall:
    operation = random.choice((ALLREDUCE, ALLREDUCE, BROADCAST, BARRIER))
    root = random.randrange(replicas) if operation.rooted else 0
    longest = random.choice((0, 30, 150, 400))
    inputs = [_draw_input(random, f"{seq}.{r}", longest) for r in range(replicas)]
    for _ in range(random.choice((0, 0, 0, 0, 1, 2))):
        rank = random.randrange(replicas)
        defect = random.choice(DEFECTS)
        if defect == RESULT:
            rank = replicas - 1
        if operation.folding is not None or (
            operation is BROADCAST and defect == ENCODE
        ):
            inputs[rank] = Input(inputs[rank].value, inputs[rank].cuts, defect)
    return PlannedCall(operation, root, random.randrange(len(FUNCTIONS)), tuple(inputs))


def _draw_input(random: random.Random, name: str, longest: int) -> Input:
    value = [name + "." * random.randint(0, longest)]
    cuts = random.choices(range(200), k=random.choice((0, 0, 1, 3)))
    return Input(value, tuple(sorted(cuts)))

from collections.abc import Iterable

from zcoll.errors import EncodeError
from zcoll.operations import Operation
from zcoll.payload import Payload
from zcoll.protocol.calls import Calls
from zcoll.protocol.failures import to_fields
from zcoll.protocol.steps import Decide, End, FoldNext, Grant, Step
from zcoll.wire import Flag, Kind, Message, pack_fields, pack_sizes


def message(
    operation: Operation,
    seq: int = 1,
    *,
    root: int = 0,
    value: bytes = b"",
    size: int = 0,
    error: str = "",
    site: str = "",
) -> Message:
    made = Message(
        Kind.CONTRIBUTE, operation=operation.code, root=root, seq=seq, site=site
    )
    if error:
        made.flags = Flag.POISONED
        made.body = pack_fields(to_fields(EncodeError(error)))
    elif size:
        made.flags, made.body = Flag.CHUNKED, pack_sizes([size])
    elif value:
        made.payload = Payload([value])
    return made


def show(steps: Iterable[Step]) -> list[str]:
    """Steps, short enough for a table."""
    lines = []
    for step in steps:
        match step:
            case Grant(rank, seq):
                lines.append(f"grant {rank} {seq}")
            case FoldNext(call, operands, last):
                ranks = ",".join(str(rank) for rank, _ in operands)
                lines.append(f"fold {call.seq} {ranks}{' last' if last else ''}")
            case Decide(call=call, outcome=outcome, error=None):
                value = bytes(b"".join(outcome.of(0).parts)).decode()
                lines.append(f"decide {call.seq} {value}".strip())
            case Decide(call=call, error=error):
                lines.append(f"fail {call.seq} {error.message if error else ''}")
            case End(error, after):
                lines.append(f"end {after} {type(error).__name__}")
    return lines


def run(calls: Calls, *arrivals: tuple[int, Message]) -> list[str]:
    return [
        line
        for rank, arrived in arrivals
        for line in show(calls.contribute(rank, arrived))
    ]

"""What becomes of a call that makes groups: the only contributions that rank 0 reads.

They are JSON, never a user's value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from zcoll.errors import CollectiveError, ProtocolError
from zcoll.operations import Makes
from zcoll.wire import pack_fields, parse_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zcoll.payload import Payload
    from zcoll.protocol.roll import Roll
    from zcoll.protocol.steps import Call

MAX_NAME = 60  # characters of what a group's name says of its parent, or its color


class Plan(NamedTuple):
    """A group that is to be made.

    Attributes:
        name: What errors call it.
        ranks: Its members' ranks in the world, in its order.
    """

    name: str
    ranks: list[int]


def plan_groups(call: Call, parent: str, roll: Roll) -> list[Plan]:
    """Which groups come of a call.

    Args:
        call: The call, with what was contributed.
        parent: The name of the group that it was made in.
        roll: The members of that.

    Raises:
        CollectiveError: What was contributed does not make any.
    """
    here = f"of {_short(parent) or 'the world'}, call {call.seq}"
    fields = {
        rank: parse_fields(payload.parts[0]) for rank, payload in call.payloads.items()
    }
    present = roll.expected(call.seq)
    if call.operation.makes is Makes.DUP:
        return [Plan(f"dup {here}", present)]
    if call.operation.makes is Makes.GROUP:
        return [_chosen(call, roll.ranks, present, fields, f"group {here}")]
    return _split(present, fields, f"split {here}")


def _chosen(
    call: Call,
    ranks: list[int],
    present: list[int],
    fields: Mapping[int, dict[str, Any]],
    name: str,
) -> Plan:
    """The group of ranks that everybody names."""
    chosen = fields[present[0]]["ranks"]
    for rank in present:
        if fields[rank]["ranks"] != chosen:
            text = (
                f"replicas {present[0]} and {rank} name different ranks, {chosen} and "
                f"{fields[rank]['ranks']}: the same ones must be given everywhere"
            )
            raise CollectiveError(text, op="group", seq=call.seq, rank=rank)
    members = [ranks[place] for place in chosen]
    gone = [rank for rank in members if rank not in present]
    if gone:
        text = f"replica {gone[0]} has left the group that a new one is made of"
        raise CollectiveError(text, op="group", seq=call.seq, rank=gone[0])
    return Plan(name, members)


def _split(
    present: list[int], fields: Mapping[int, dict[str, Any]], name: str
) -> list[Plan]:
    """A group for each color, in the order of the keys, then of the ranks."""
    colors: dict[Any, list[int]] = {}
    for rank in sorted(present, key=lambda rank: fields[rank]["key"]):
        color = fields[rank]["color"]
        if color is not None:
            colors.setdefault(color, []).append(rank)
    return [
        Plan(f"{name}, color {_short(repr(color))}", ranks)
        for color, ranks in colors.items()
    ]


def _short(name: str) -> str:
    """A part of a name; groups of groups of groups would have endless ones."""
    more = len(name) - MAX_NAME
    return name if more <= 0 else f"{name[: MAX_NAME // 2]}...{name[-MAX_NAME // 2 :]}"


def pack_color(color: int | str | None, key: int) -> bytes:
    """What a replica contributes to a split."""
    return pack_fields({"color": color, "key": key})


def pack_ranks(ranks: list[int]) -> bytes:
    """What a replica contributes to the making of a group."""
    return pack_fields({"ranks": ranks})


def check_plan(makes: Makes, payload: Payload, size: int) -> None:
    """Refuse a contribution to the making of groups that makes no sense.

    Raises:
        ProtocolError: It does not.
    """
    fields = parse_fields(payload.parts[0])
    if makes is Makes.SPLIT:
        color, key = fields.get("color"), fields.get("key")
        if type(key) is not int or type(color) not in (int, str, type(None)):
            raise ProtocolError(f"a split by color {color!r:.80} and key {key!r:.80}")
    elif makes is Makes.GROUP:
        ranks = fields.get("ranks")
        if not isinstance(ranks, list) or not _are_ranks(ranks, size):
            raise ProtocolError(f"a group of ranks {ranks!r:.80}")


def _are_ranks(ranks: list[Any], size: int) -> bool:
    """Whether these are different ranks of a group, one at least."""
    inside = all(type(rank) is int and 0 <= rank < size for rank in ranks)
    return inside and 0 < len(set(ranks)) == len(ranks)

"""What replicas get to read when they have made different calls."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from zcoll.errors import MismatchError, name_ranks
from zcoll.operations import by_code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zcoll.protocol.steps import Call
    from zcoll.wire import Message


def mismatch(
    call: Call, rank: int, other: Message, waiting: Sequence[int], group: str
) -> MismatchError:
    """The error, with a table of who called what and where.

    Args:
        call: The call, as those before made it.
        rank: Who made another one.
        other: That one.
        waiting: Who has not made it yet.
        group: The name of the group, or "".
    """
    rows: dict[tuple[str, str], list[int]] = defaultdict(list)
    for member, place in call.sites.items():
        rows[call.describe(), place].append(member)
    what = by_code(other.operation).describe(other.root, other.tag)
    rows[what, other.site].append(rank)
    lines = [
        f"  {name_ranks(ranks)}: {what}" + (f" at {where}" if where else "")
        for (what, where), ranks in rows.items()
    ]
    if waiting:
        lines.append(f"  {name_ranks(waiting)}: not called yet")
    text = "\n".join(lines)
    where = f" of group {group!r}" if group else ""
    return MismatchError(
        f"replicas disagree on call {call.seq}{where}; the same calls must be made in "
        f"the same order everywhere:\n{text}",
        rank=rank,
        group=group,
    )

from typing import Any

import pytest

from zcoll.absence import Absence, Whereabouts, read_absence, write_absence
from zcoll.errors import ProtocolError

ABSENCE = Absence(
    rank=2,
    host="node",
    pid=9,
    state=Whereabouts.IN_USER_CODE,
    seconds=41.25,
    where="train.py:88 load_batch",
    last_call="barrier(), call 3 (train.py:90 step)",
    stack="lines",
)
LAST = "; it last called barrier(), call 3 (train.py:90 step)"


@pytest.mark.parametrize("state", list(Whereabouts))
def test_an_absence_comes_back_from_its_fields(state: Whereabouts) -> None:
    absence = ABSENCE._replace(state=state)
    assert read_absence(write_absence(absence)) == absence


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (Whereabouts.GONE, f"is gone{LAST}"),
        (Whereabouts.DISCONNECTED, f"has been disconnected for 41.2 s{LAST}"),
        (
            Whereabouts.SILENT,
            (
                "has given no sign of life for 41.2 s: its host is silent, it is "
                f"stopped, or its interpreter is stuck{LAST}"
            ),
        ),
        (
            Whereabouts.IN_USER_CODE,
            f"is in user code at train.py:88 load_batch for 41.2 s{LAST}",
        ),
        (Whereabouts.WAITING, f"waits in train.py:88 load_batch for 41.2 s{LAST}"),
        (Whereabouts.THERE, f"was heard of 41.2 s ago{LAST}"),
    ],
)
def test_an_absence_reads_as_what_is_known(state: Whereabouts, text: str) -> None:
    assert str(ABSENCE._replace(state=state)) == f"replica 2 (node, pid 9) {text}"


def test_who_has_never_joined_has_no_host_and_called_nothing() -> None:
    absence = ABSENCE._replace(host="", pid=0, state=Whereabouts.NEVER_JOINED)
    assert str(absence) == "replica 2 has never joined"


@pytest.mark.parametrize(
    "fields",
    [
        None,
        "gone",
        [],
        {},
        {**write_absence(ABSENCE), "state": "on holiday"},
        {**write_absence(ABSENCE), "state": []},
        {**write_absence(ABSENCE), "rank": "2"},
        {**write_absence(ABSENCE), "pid": True},
        {**write_absence(ABSENCE), "seconds": "long"},
        {**write_absence(ABSENCE), "stack": None},
    ],
)
def test_fields_that_are_no_absence_are_refused(fields: Any) -> None:
    with pytest.raises(ProtocolError, match=r"an absence (with|of)"):
        read_absence(fields)

from __future__ import annotations

from typing import Any

import pytest

from zcoll.absence import Absence, Whereabouts, write_absence
from zcoll.errors import ProtocolError
from zcoll.protocol.status import Pending, Present, Status, read_status

REPLICA = {"rank": 0, "host": "node", "pid": 7, "package": "1.0"}
ABSENCE = Absence(2, "node", 9, Whereabouts.THERE, 0.5, "", "nothing yet", "")
CALL = {
    "seq": 3,
    "operation": "barrier()",
    "site": "a:1",
    "ranks": [2],
    "absences": [write_absence(ABSENCE)],
    "text": "x",
    "group": "g",
}
FIELDS: dict[str, Any] = {
    "package": "1.0",
    "num_replicas": 3,
    "replicas": [REPLICA],
    "unranked": 1,
    "complete": False,
    "closing": False,
    "decided": 2,
    "call": CALL,
    "ways": {"1": "shared memory"},
}


def test_fields_become_a_status() -> None:
    status = read_status({**FIELDS, "of a newer package": 1})
    assert status == Status(
        package="1.0",
        num_replicas=3,
        replicas=[Present(0, "node", 7, "1.0")],
        unranked=1,
        complete=False,
        closing=False,
        decided=2,
        call=Pending(3, "barrier()", "a:1", [2], [ABSENCE], "x", "g"),
        ways={1: "shared memory"},
    )
    assert status.missing == [2]
    assert read_status({**FIELDS, "call": None}).call is None


@pytest.mark.parametrize(
    ("complete", "ranks", "whole"),
    [(True, (0, 1), True), (True, (0,), False), (False, (0, 1), False)],
)
def test_whole_means_that_all_have_come_and_are_still_there(
    complete: bool, ranks: tuple[int, ...], whole: bool
) -> None:
    replicas = [{**REPLICA, "rank": rank} for rank in ranks]
    changed = {"num_replicas": 2, "complete": complete, "replicas": replicas}
    changed["unranked"] = 0
    assert read_status({**FIELDS, **changed}).whole is whole


@pytest.mark.parametrize(
    "wrong",
    [
        {"package": 1},
        {"num_replicas": "3"},
        {"num_replicas": True},
        {"replicas": None},
        {"replicas": [7]},
        {"replicas": [{**REPLICA, "pid": "7"}]},
        {"complete": 1},
        {"decided": None},
        {"unranked": None},
        {"call": []},
        {"ways": None},
        {"ways": {"one": "x"}},
        {"ways": {"1": None}},
        {"call": {**CALL, "ranks": ["2"]}},
        {"call": {**CALL, "absences": None}},
        {"call": {**CALL, "site": None}},
    ],
)
def test_other_fields_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError, match="a status with"):
        read_status({**FIELDS, **wrong})


@pytest.mark.parametrize("name", [name for name in FIELDS if name != "call"])
def test_no_field_may_be_missing(name: str) -> None:
    with pytest.raises(ProtocolError, match=f"{name}=None"):
        read_status({key: value for key, value in FIELDS.items() if key != name})

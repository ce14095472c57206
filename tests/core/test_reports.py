from typing import Any

import pytest
from core.coordinator_bench import SESSION, Bench, messages, peer, told

from zcoll.absence import Absence, Whereabouts, read_absence
from zcoll.errors import ProtocolError
from zcoll.operations import ALLREDUCE, BROADCAST
from zcoll.payload import Payload
from zcoll.protocol.events import Missing
from zcoll.protocol.reports import (
    ANSWER_TIME,
    FRESH,
    MAX_STACK,
    SILENT,
    read_report,
    read_stack,
)
from zcoll.wire import Flag, Kind, Message, pack_fields, pack_sizes

STACK = {"waiting": "", "where": "a.py:9 load", "stack": "lines", "seconds": 4.5}


def ask(bench: Bench, rank: int = 2, seq: int = 1) -> list[Missing]:
    return answers(bench, bench.hear(rank, Kind.QUERY, seq=seq))


def later(bench: Bench, seconds: float) -> list[Missing]:
    bench.now += seconds
    bench.machine.tick(bench.now)
    return answers(bench, bench.machine.take())


def answers(bench: Bench, instructions: list[Any]) -> list[Missing]:
    return [read_report(report) for report in messages(instructions, Kind.REPORT)]


def tell(bench: Bench, rank: int, **changed: Any) -> list[Missing]:
    body = pack_fields({**STACK, **changed})
    return answers(bench, bench.hear(rank, Kind.STACK, body=body))


def absence(rank: int, state: Whereabouts, **known: Any) -> Absence:
    fields: dict[str, Any] = {
        "host": "host",
        "pid": 1000 + rank,
        "seconds": 0.0,
        "where": "",
        "last_call": "nothing yet",
        "stack": "",
        **known,
    }
    return Absence(rank=rank, state=state, **fields)


# --- the way of a question --------------------------------------------------------


def test_those_who_are_missing_are_asked_where_they_are() -> None:
    bench = Bench(4)
    bench.call(2)
    assert told(bench.hear(2, Kind.QUERY, seq=1)) == {
        rank: [Kind.STACK] for rank in (peer(0), peer(1), peer(3))
    }


def test_the_answer_goes_when_everybody_who_is_missing_has_told() -> None:
    bench = Bench()
    for rank in (0, 2):
        bench.call(rank)
    assert ask(bench) == []
    where = {"seconds": 4.5, "where": "a.py:9 load", "stack": "lines"}
    known = absence(1, Whereabouts.IN_USER_CODE, **where)
    assert tell(bench, 1) == [Missing(0, 1, [1], [known], "")]
    assert tell(bench, 1) == []
    assert later(bench, 9.0) == []


def test_the_answer_does_not_wait_for_those_who_do_not_respond() -> None:
    bench = Bench(4)
    bench.call(2)
    bench.call(0)
    assert ask(bench) == []
    assert tell(bench, 1, waiting="barrier, call 9 (b.py:1)") == []
    assert later(bench, ANSWER_TIME / 2) == []
    (answer,) = later(bench, ANSWER_TIME / 2)
    assert answer.ranks == [1, 3]
    assert [each.state for each in answer.absences] == [
        Whereabouts.WAITING,
        Whereabouts.THERE,
    ]
    assert answer.absences[0].where == "barrier, call 9 (b.py:1)"


def test_several_who_ask_get_an_answer_each() -> None:
    bench = Bench()
    for rank in (0, 2):
        bench.call(rank)
    for rank in (0, 2):
        ask(bench, rank)
    instructions = bench.hear(1, Kind.STACK, body=pack_fields(STACK))
    assert told(instructions) == {peer(0): [Kind.REPORT], peer(2): [Kind.REPORT]}


def test_an_answer_is_for_the_question_of_its_call() -> None:
    bench = Bench()
    bench.call(0)
    for seq in (1, 2):
        bench.call(2)
        ask(bench, 2, seq)
    first, second = later(bench, ANSWER_TIME)
    assert (first.seq, first.ranks) == (1, [1])
    assert (second.seq, second.ranks) == (2, [0, 1])


def test_nobody_waits_for_the_answer_to_one_who_has_gone() -> None:
    bench = Bench()
    bench.call(2)
    ask(bench)
    bench.machine.unreachable(peer(2), bench.now)
    assert later(bench, ANSWER_TIME) == []
    assert bench.machine.reports._queries == []


def test_what_replicas_have_told_is_not_kept_for_long() -> None:
    bench = Bench()
    tell(bench, 1)
    assert later(bench, FRESH) == []
    assert bench.machine.reports._latest == {}


# --- what is known of each --------------------------------------------------------


def test_of_many_only_the_first_are_described() -> None:
    bench = Bench(40)
    ask(bench, 1)
    (answer,) = later(bench, ANSWER_TIME)
    assert answer.ranks == list(range(40))
    assert [each.rank for each in answer.absences] == list(range(16))


def test_who_is_connected_but_silent_does_not_respond() -> None:
    bench = Bench()
    bench.call(0)
    bench.now += SILENT
    bench.call(2, site="b.py:1")
    ask(bench)
    (answer,) = later(bench, ANSWER_TIME)
    (known,) = answer.absences
    assert known == absence(1, Whereabouts.SILENT, seconds=3.3)


def test_rank_0_is_never_silent_to_itself() -> None:
    bench = Bench(2)
    bench.now += 99.0
    bench.call(1)
    ask(bench, 1)
    (answer,) = later(bench, ANSWER_TIME)
    assert answer.absences[0].state is Whereabouts.THERE


def test_whose_connection_is_down_is_disconnected() -> None:
    bench = Bench()
    for rank in (0, 2):
        bench.call(rank)
    bench.machine.unreachable(peer(1), bench.now - 1.5)
    (answer,) = ask(bench)
    assert answer.absences == [absence(1, Whereabouts.DISCONNECTED, seconds=1.5)]


def test_who_has_left_is_gone_and_its_last_call_is_known() -> None:
    bench = Bench()
    for rank in (0, 1, 2):
        bench.call(rank, site="a.py:3")
    bench.call(2)
    bench.hear(1, Kind.BYE, body=b"{}")
    ask(bench, 2, 2)
    (answer,) = later(bench, ANSWER_TIME)
    last = "barrier(), call 1 (a.py:3)"
    gone = absence(1, Whereabouts.GONE, last_call=last, seconds=ANSWER_TIME)
    assert answer.absences[1] == gone


def test_before_the_group_is_complete_somebody_has_never_joined() -> None:
    bench = Bench(joined=False)
    bench.call(0)
    bench.machine.receive(b"", Message(Kind.QUERY, seq=1), bench.now)
    (answer,) = answers(bench, bench.machine.take())
    unknown = absence(1, Whereabouts.NEVER_JOINED, host="", pid=0, seconds=10.0)
    assert answer.absences[0] == unknown


# --- when nobody is missing -------------------------------------------------------


def text(bench: Bench, seq: int = 1) -> str:
    (answer,) = ask(bench, 2, seq)
    assert (answer.ranks, answer.absences) == ([], [])
    return answer.text


def test_a_call_that_is_folded_waits_for_its_reduce_function() -> None:
    bench = Bench()
    for rank in range(3):
        bench.call(rank, ALLREDUCE, value=b"v")
    assert text(bench) == (
        "everybody has called; rank 0 is in reduce function its reduce function"
    )
    bench.machine.reports.reducing[0, 1] = "merge"
    assert text(bench) == "everybody has called; rank 0 is in reduce function merge"
    bench.machine.folded(0, 1, [Payload([b"vvv"])], None)
    bench.machine.take()
    assert text(bench) == "everybody has called; the outcome is on its way"


def test_a_call_may_wait_for_values_or_for_the_call_before_it() -> None:
    bench = Bench()
    head: dict[str, Any] = {"flags": Flag.CHUNKED, "value": pack_sizes([9])}
    for rank in range(3):
        bench.call(rank, BROADCAST, root=1, **(head if rank == 1 else {}))
        bench.call(rank)
    assert text(bench) == "everybody has called; values are on their way to rank 0"
    assert text(bench, 2) == (
        "everybody has called; broadcast(root=1), call 1 comes first"
    )


# --- those who ask from outside ---------------------------------------------------


def test_they_are_told_at_once_and_know_more_if_they_ask_again() -> None:
    bench = Bench()
    bench.call(0)
    bench.call(2)
    first = bench.machine.reports.peek(0, 1, bench.now)
    assert [each["state"] for each in first["absences"]] == ["there"]
    assert told(bench.machine.take()) == {peer(1): [Kind.STACK]}
    tell(bench, 1)
    second = bench.machine.reports.peek(0, 1, bench.now)
    assert read_absence(second["absences"][0]).where == "a.py:9 load"
    bench.now += FRESH
    third = bench.machine.reports.peek(0, 1, bench.now)
    assert [each["state"] for each in third["absences"]] == ["there"]


# --- what is no stack and no report -----------------------------------------------


def test_a_long_stack_keeps_its_end() -> None:
    read = read_stack({**STACK, "stack": "x" * MAX_STACK + "end", "more": 1})
    assert len(read["stack"]) == MAX_STACK
    assert read["stack"].endswith("end")
    assert "more" not in read


@pytest.mark.parametrize("name", list(STACK))
@pytest.mark.parametrize("value", [None, 3, [], {}])
def test_a_stack_that_is_none_loses_its_sender(name: str, value: object) -> None:
    with pytest.raises(ProtocolError, match=f"a stack with {name}="):
        read_stack({**STACK, name: value})
    bench = Bench()
    instructions = bench.hear(1, Kind.STACK, body=pack_fields({name: value}))
    assert Kind.OVER in told(instructions)[peer(2)]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"ranks": [1], "text": ""},
        {"ranks": [1], "absences": 3, "text": ""},
        {"ranks": [1], "absences": [3], "text": ""},
        {"ranks": "1", "absences": [], "text": ""},
        {"ranks": [True], "absences": [], "text": ""},
    ],
)
def test_a_report_that_is_none_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        read_report(Message(Kind.REPORT, session=SESSION, body=pack_fields(fields)))

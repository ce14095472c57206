from core.coordinator_bench import SESSION, Bench, messages

from zcoll.wire import (
    Kind,
    Message,
    parse_fields,
)


def test_a_beacon_is_answered_and_is_a_sign_of_life() -> None:
    bench = Bench()
    bench.now = 33.0
    (answer,) = messages(bench.hear(1, Kind.BEACON), Kind.BEACON)
    assert answer.session == SESSION
    assert bench.machine.membership.members[1].heard == 33.0


def test_a_ping_is_answered_to_whoever_asks() -> None:
    bench = Bench(joined=False)
    bench.hello(1)
    bench.call(0, site="a.py:3")
    peer = bench.machine.membership.members[1].peer
    assert peer is not None
    bench.machine.ways = {peer: "some way", b"another": "no member's"}
    ping = Message(Kind.PING, seq=5, body=b" " * 2000)
    bench.machine.receive(b"stranger", ping, 12.0)
    (pong,) = messages(bench.machine.take(), Kind.PONG)
    assert (pong.seq, len(pong.body)) == (5, 2000)
    fields = parse_fields(pong.body)
    call = fields.pop("call")
    assert [row["rank"] for row in fields.pop("replicas")] == [0, 1]
    assert fields == {
        "package": "1.0",
        "num_replicas": 3,
        "complete": False,
        "closing": False,
        "unranked": 0,
        "decided": 0,
        "ways": {"1": "some way"},
    }
    assert call["site"] == "a.py:3"
    assert (call["seq"], call["operation"]) == (1, "barrier()")
    assert call["ranks"] == [1, 2]
    assert [each["state"] for each in call["absences"]] == ["there", "never joined"]


def test_a_ping_between_calls_shows_none() -> None:
    bench = Bench()
    bench.machine.receive(b"stranger", Message(Kind.PING), 12.0)
    (pong,) = messages(bench.machine.take(), Kind.PONG)
    fields = parse_fields(pong.body)
    assert (fields["complete"], fields["call"]) == (True, None)


def test_progress_is_counted() -> None:
    bench = Bench()
    before = bench.machine.progress
    bench.hear(1, Kind.BEACON)
    assert bench.machine.progress == before
    bench.call(1)
    assert bench.machine.progress > before

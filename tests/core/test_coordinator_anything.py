from core.coordinator_bench import SESSION, Bench, identity, peer
from hypothesis import given
from hypothesis import strategies as st

from zcoll.errors import EncodeError, MismatchError
from zcoll.protocol.failures import to_fields
from zcoll.protocol.identities import write_identity
from zcoll.wire import (
    Kind,
    Message,
    pack_fields,
    pack_place,
    pack_sizes,
)

BODIES = [
    b"",
    b"{}",
    b"junk",
    pack_sizes([3]),
    pack_sizes([0, 2**63]),
    pack_place(0, 0),
    pack_fields({"reason": 3}),
    pack_fields({"waiting": "", "where": "a.py:1", "stack": "", "seconds": 0.5}),
    pack_fields(to_fields(EncodeError("no"))),
    pack_fields(to_fields(MismatchError("no"))),
    pack_fields({**write_identity(identity(1, 3)), "job": "job", "session": 0}),
    pack_fields({**write_identity(identity(2, 3)), "job": "job", "session": SESSION}),
]
ANYTHING = st.builds(
    Message,
    kind=st.sampled_from(Kind),
    operation=st.integers(0, 5),
    flags=st.integers(0, 3),
    root=st.integers(0, 3),
    session=st.sampled_from([SESSION, SESSION, SESSION, 0, 5]),
    seq=st.integers(0, 3),
    number=st.integers(0, 4),
    ack=st.integers(0, 3),
    body=st.sampled_from(BODIES),
    data=st.sampled_from([b"", b"abc"]),
)


@given(st.lists(st.tuples(st.integers(1, 3), ANYTHING)), st.booleans())
def test_nothing_that_peers_send_breaks_rank_0(
    arrivals: list[tuple[int, Message]], joined: bool
) -> None:
    bench = Bench(joined=joined)
    bench.call(0)
    for rank, message in arrivals:
        bench.machine.receive(peer(rank), message, bench.now)
        bench.machine.take()
        bench.now += 0.5
        bench.machine.tick(bench.now)
    bench.call(0)

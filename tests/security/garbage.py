"""What an admitted replica might say that no zcoll says."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

from security.insider import Insider, hello

from zcoll.payload import Buffer
from zcoll.wire import Flag, Kind, Message, pack, pack_fields, pack_place, pack_sizes

if TYPE_CHECKING:
    from collections.abc import Callable

HUGE = 2**64 - 1
_JOBS = (0, 10, 100_000)  # characters of a name


def _noise(choose: random.Random) -> list[Buffer]:
    """Frames of anything, and too many of them."""
    count = choose.choice([1, 1, 1, 2, 3, 50])
    return [choose.randbytes(choose.randrange(200)) for _ in range(count)]


def _spoilt_header(choose: random.Random) -> list[Buffer]:
    """A header in which one byte makes no sense."""
    frame = bytearray(pack(hello())[0])
    place, wrong = choose.choice([(0, 0), (2, 9), (3, 99), (5, 0xF0), (6, 0xFF)])
    frame[place] = wrong
    return [bytes(frame)]


def _cut(choose: random.Random) -> list[Buffer]:
    """A HELLO of which the end is missing."""
    frame = bytes(pack(hello())[0])
    return [frame[: choose.randrange(len(frame))]]


def _bad_hello(choose: random.Random) -> list[Buffer]:
    """Fields that are missing, or of another type, or more than is read."""
    name = choose.choice(["rank", "num_replicas", "host", "pid", "incarnation"])
    wrong: list[Any] = [None, [], {}, 1.5, True, [[]] * 1000]
    return pack(
        hello(**{name: choose.choice(wrong), "job": "x" * choose.choice(_JOBS)})
    )


def _numbered(message: Message, number: int = 1) -> list[Buffer]:
    message.number = number
    return pack(message)


def _bad_contribution(choose: random.Random) -> list[Buffer]:
    """Operations, numbers, roots and sizes that cannot be."""
    sizes = [HUGE] * choose.randrange(1, 2000)
    wrong = [
        Message(Kind.CONTRIBUTE, operation=choose.randrange(50, 256), seq=1),
        Message(Kind.CONTRIBUTE, operation=1, seq=choose.choice([0, 2, HUGE])),
        Message(
            Kind.CONTRIBUTE, operation=2, seq=1, root=choose.choice([9, 2**32 - 1])
        ),
        Message(Kind.CONTRIBUTE, operation=1, seq=1),  # without a value
        Message(
            Kind.CONTRIBUTE,
            operation=99,
            seq=1,
            flags=Flag.CHUNKED,
            body=pack_sizes(sizes),
        ),
        Message(
            Kind.CONTRIBUTE,
            operation=1,
            seq=1,
            flags=Flag.CHUNKED,
            body=choose.randbytes(choose.randrange(1, 8)),
        ),
        Message(
            Kind.CONTRIBUTE,
            operation=1,
            seq=1,
            flags=Flag.POISONED,
            body=pack_fields({"error": choose.choice(["OSError", 5, "GroupError"])}),
        ),
    ]
    return _numbered(choose.choice(wrong))


def _bad_other(choose: random.Random) -> list[Buffer]:
    """What only rank 0 says, what was never sent, bodies that are none."""
    theirs = [Kind.READY, Kind.GRANT, Kind.OUTCOME, Kind.FAILURE, Kind.OVER]
    kind = choose.choice(theirs)
    wrong = [
        _numbered(Message(kind, seq=1)),
        pack(Message(choose.choice([Kind.WELCOME, Kind.REJECT, Kind.WAITING]))),
        pack(Message(Kind.ACK, ack=choose.choice([1000, HUGE]))),
        pack(Message(Kind.STACK, body=choose.randbytes(20))),
        pack(Message(Kind.ACK, body=b"", number=5)),
        pack(Message(Kind.CHUNK, body=pack_place(0, 0), data=b"x")),
        _numbered(Message(Kind.BYE, body=b"[" * choose.randrange(1, 50_000))),
        _numbered(Message(Kind.ABORT, body=choose.randbytes(9))),
    ]
    return choose.choice(wrong)


_KINDS: list[Callable[[random.Random], list[Buffer]]] = [
    _noise,
    _spoilt_header,
    _cut,
    _bad_hello,
    _bad_contribution,
    _bad_other,
]
_SESSION = slice(16, 24)  # where it stands in a header


def malformed(choose: random.Random, session: int) -> list[Buffer]:
    """Something that is no message, or has no place where it is said."""
    frames = choose.choice(_KINDS)(choose)
    head = bytearray(frames[0])
    if len(head) >= _SESSION.stop and head[:2] == b"zc":
        head[_SESSION] = session.to_bytes(8, "big")
        frames[0] = bytes(head)
    return frames


def misbehave(
    one: Insider, count: int, seed: int = 0, rank: int = 2, size: int = 4
) -> float:
    """Be admitted and say something malformed, so many times; give the seconds.

    The group must not be complete: rank 0 then forgets who says such things, and
    admits it again.
    """
    choose = random.Random(seed)
    start = time.monotonic()
    one.join(rank, size)
    welcome = hello(rank, size, incarnation=id(one))
    for done in range(count):
        one.send_frames(malformed(choose, one.session))
        one.send_frames(pack(welcome))
        if done % 500 == 499:
            _catch_up(one)
    _catch_up(one)
    return time.monotonic() - start


def _catch_up(one: Insider) -> None:
    """Wait until rank 0 has read everything."""
    one.asked += 1
    one.send_frames(pack(Message(Kind.PING, seq=one.asked)))
    while one.expect(Kind.PONG).seq != one.asked:
        pass

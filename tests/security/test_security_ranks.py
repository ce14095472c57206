"""S12, S13, S14: who a member of the group is, and who is not."""

from __future__ import annotations

import functools
import logging
import os
import socket
import struct
import time
from typing import Any

import pytest
from group import LIMIT, SECRET, Crew, Replica
from ports import ipc_port
from security.canary import contribution
from security.insider import HOME, finish, hello, insider

import zcoll
from zcoll import operations
from zcoll.codec import encode
from zcoll.launchers.environment import read_settings
from zcoll.transport import ipc
from zcoll.wire import Kind, Message, pack, parse_fields

SOON = 2.0  # seconds in which somebody is refused
TAKEN_LIMIT = 3.0  # seconds in which the holder of a rank might turn out to be dead


@pytest.mark.parametrize("secret", [None, SECRET])
def test_s12_a_rank_that_is_taken_is_refused(secret: str | None) -> None:
    with Crew(2, secret=secret) as crew:
        start = time.monotonic()
        with pytest.raises(zcoll.RejectedError, match="rank 1 is taken by replica 1"):
            zcoll.connect(HOME, crew.port, 1, 2, secret=secret, timeout=LIMIT)
        assert time.monotonic() - start < TAKEN_LIMIT + SOON
        assert crew.run(lambda comm: comm.allreduce(1)) == [2, 2]


def test_s12_a_rank_is_what_hello_has_bound_to_the_connection() -> None:
    """What a later message says of its sender's rank does not count."""
    with ipc_port() as port:
        connect = functools.partial(zcoll.connect, HOME, port, timeout=LIMIT)
        honest = [Replica(rank, functools.partial(connect, rank, 3)) for rank in (0, 1)]
        with insider(port, None) as other:
            other.join(2, 3)
            for replica in honest:
                replica.joined.result(LIMIT)
            lie = contribution(bytes(encode("lie").parts[0]))
            lie.rank = 1
            other.send(lie)
            calls = [
                replica.start(lambda comm: comm.allreduce("true", lambda a, b: a + b))
                for replica in honest
            ]
            assert [call.result(LIMIT) for call in calls] == ["truetruelie"] * 2
            for replica in honest:
                replica.leave()
            code = operations.TEARDOWN.code
            other.send(Message(Kind.CONTRIBUTE, operation=code, seq=2))
            for replica in honest:
                replica.left.result(LIMIT)


def routing_id(comm: zcoll.Communicator, rank: int) -> bytes:
    engine: Any = comm._engine
    peer = engine._coordinator.membership.members[rank].peer
    assert isinstance(peer, bytes)
    return peer


def zmtp(port: int, identity: bytes) -> socket.socket:
    """A connection of a DEALER that claims a routing id: ZMTP 3.0, by hand."""
    one = socket.socket(socket.AF_UNIX)
    one.settimeout(LIMIT)
    one.connect(str(ipc.path_of(port)))
    one.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0"))
    one.sendall(bytes(32))
    receive(one, b"Identity")  # the other side's part of the handshake
    body = b"\x05READY"
    for name, value in (b"Socket-Type", b"DEALER"), (b"Identity", identity):
        body += bytes([len(name)]) + name + struct.pack("!I", len(value)) + value
    one.sendall(bytes([4, len(body)]) + body)
    return one


def receive(one: socket.socket, until: bytes) -> bytes:
    """Read until this has come; the other end must not close before."""
    heard = b""
    while until not in heard:
        data = one.recv(4096)
        assert data, f"closed after {heard!r}"
        heard += data
    return heard


def frame_of(message: Message) -> bytes:
    (body,) = pack(message)
    return struct.pack("!BQ", 2, len(body)) + bytes(body)


def test_s13_a_routing_id_is_not_taken_over() -> None:
    with Crew(2) as crew:
        (victim, _) = crew.run(
            lambda comm: routing_id(comm, 1) if comm.replica_rank == 0 else None
        )
        assert victim is not None
        with zmtp(crew.port, victim) as thief, zmtp(crew.port, b"mine") as control:
            for one in thief, control:
                one.sendall(frame_of(hello(incarnation=1)))
            receive(control, b"taken")  # with an id of its own it is answered
            for _ in range(20):
                assert crew.run(lambda comm: comm.allreduce(3)) == [6, 6]
            thief.setblocking(False)
            heard = b""
            try:
                while data := thief.recv(4096):
                    heard += data
            except BlockingIOError:
                pass
            assert b"zc" not in heard


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "job": ({"job": "another"}, "another job"),
    "size": ({"num_replicas": 3}, "num_replicas=2.*num_replicas=3"),
    "rank 0": ({"rank": 0}, "rank 0 is taken"),
    "rank": ({"rank": 2}, "not in 0..1"),
    "negative rank": ({"rank": -2}, "not in 0..1"),
    "session": ({"session": 5}, "started again"),
}


@pytest.mark.parametrize(("changes", "reason"), WRONG.values(), ids=WRONG)
def test_s14_hello_is_checked(changes: dict[str, Any], reason: str) -> None:
    with ipc_port() as port:
        connect = functools.partial(zcoll.connect, HOME, port, timeout=LIMIT)
        rank_0 = Replica(0, lambda: connect(0, 2))
        with insider(port, None) as other:
            other.send(hello(**changes))
            fields = parse_fields(other.expect(Kind.REJECT, SOON).body)
            assert fields["refusal"] == "final"
            with pytest.raises(AssertionError, match=reason):
                raise AssertionError(fields["reason"])
        last = Replica(1, lambda: connect(1, 2))
        finish(rank_0, last)


def test_s14_another_protocol_version_is_refused() -> None:
    with ipc_port() as port:
        connect = functools.partial(zcoll.connect, HOME, port, timeout=LIMIT)
        rank_0 = Replica(0, lambda: connect(0, 2))
        with insider(port, None) as other:
            (frame,) = pack(hello())
            other.send_frames([b"zc\x02" + bytes(frame)[3:]])
            fields = parse_fields(other.expect(Kind.REJECT, SOON).body)
            assert "protocol version 2, here it is 1" in fields["reason"]
        finish(rank_0, Replica(1, lambda: connect(1, 2)))


def test_s14_a_hello_of_megabytes_is_not_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="zcoll"), ipc_port() as port:
        connect = functools.partial(zcoll.connect, HOME, port, timeout=LIMIT)
        rank_0 = Replica(0, lambda: connect(0, 2))
        with insider(port, None) as other:
            other.send(hello(job="x" * 200_000))
            other.send(Message(Kind.PING))
            other.expect(Kind.PONG)
        finish(rank_0, Replica(1, lambda: connect(1, 2)))
    assert any("a HELLO of 20" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("secret", [None, SECRET])
def test_s14_two_jobs_that_meet_do_not_mix(secret: str | None) -> None:
    with ipc_port() as held:
        port = held if secret is None else held + 1
        connect = functools.partial(
            zcoll.connect, HOME, port, timeout=LIMIT, secret=secret
        )
        rank_0 = Replica(0, lambda: connect(0, 2, job_id="a"))
        with insider(port, secret) as other:  # rank 0 is there
            other.send(Message(Kind.PING))
            other.expect(Kind.PONG)
        for job in "b", None:
            start = time.monotonic()
            with pytest.raises(zcoll.RejectedError, match="another job"):
                connect(1, 2, job_id=job)
            assert time.monotonic() - start < SOON
        finish(rank_0, Replica(1, lambda: connect(1, 2, job_id="a")))


JOBS: list[tuple[dict[str, str], str]] = [
    ({}, ""),
    ({"ZCOLL_JOB_ID": "mine", "ADAPTDL_JOB_ID": "theirs"}, "mine"),
    ({"ADAPTDL_JOB_ID": "ns/job"}, "ns/job"),
    ({"ADAPTDL_JOB_ID": "ns/job", "ADAPTDL_NUM_RESTARTS": "2"}, "ns/job, restart 2"),
    ({"ADAPTDL_NUM_RESTARTS": "2"}, ""),
    ({"TORCHELASTIC_RUN_ID": "r", "TORCHELASTIC_RESTART_COUNT": "0"}, "r, restart 0"),
    ({"SLURM_JOB_ID": "4711"}, "4711"),
    ({"SLURM_JOB_ID": "4711", "ADAPTDL_JOB_ID": "ns/job"}, "ns/job"),
]


@pytest.mark.parametrize(("variables", "expected"), JOBS)
def test_s14_where_the_name_of_a_job_comes_from(
    variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for launcher in ("ADAPTDL", "TORCHELASTIC", "SLURM", "ZCOLL"):
        for name in [name for name in os.environ if name.startswith(launcher)]:
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert read_settings().job == expected
    assert read_settings(job_id="given").job == "given"

"""S15, S16: what comes out of a connection is what was sent, or an error."""

from __future__ import annotations

import contextlib
import functools
import random
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest
from faults.between import proxied
from faults.harm import Fault
from group import LIMIT, SECRET, Replica
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ports import ipc_port, tcp_port
from security.attacks import flood
from security.garbage import malformed, misbehave
from security.insider import HOME, finish, hello, insider
from security.victim import stop, victim

import zcoll
from zcoll.errors import ProtocolError
from zcoll.wire import Kind, Message, pack, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
SHORT = 3000  # malformed inputs; tools/fuzz takes 100,000


# --- S15 ----------------------------------------------------------------------


@pytest.mark.parametrize("offset", [5, 70, 300, 700, 1500, 30_000])
@pytest.mark.parametrize("way", ["up", "down"])
def test_s15_a_byte_that_was_changed_never_changes_a_result(
    offset: int, way: str
) -> None:
    fault = Fault(flip_up=offset) if way == "up" else Fault(flip_down=offset)

    def task(comm: zcoll.Communicator) -> bool:
        mine = np.arange(10_000) * (comm.replica_rank + 1)
        return bool((comm.allreduce(mine) == np.arange(10_000) * 3).all())

    with proxied(2, lambda index: Fault() if index else fault) as (_, crew):
        assert crew.run(task) == [True, True]


@contextlib.contextmanager
def recorder(target: int) -> Iterator[tuple[int, list[bytes]]]:
    """Pass one connection on to rank 0, and keep what went up."""
    kept: list[bytes] = []

    def carry(source: socket.socket, sink: socket.socket, *, keep: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if keep:
                    kept.append(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with contextlib.suppress(OSError):
            client, _ = listener.accept()
            server = socket.create_connection((HOME, target), LIMIT)
            with client, server:
                up = threading.Thread(
                    target=carry, args=(client, server), kwargs={"keep": True}
                )
                up.start()
                carry(server, client, keep=False)
                up.join(LIMIT)

    with socket.create_server((HOME, 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1], kept
    thread.join(LIMIT)


def test_s15_what_was_recorded_cannot_be_played_again() -> None:
    port = tcp_port()
    connect = functools.partial(zcoll.connect, timeout=LIMIT, secret=SECRET)
    rank_0 = Replica(0, lambda: connect(HOME, port, 0, 3))
    with insider(port, SECRET) as other:
        other.send(Message(Kind.PING))
        other.expect(Kind.PONG)
    with recorder(port) as (between, kept):
        first = Replica(1, lambda: connect(HOME, between, 1, 3))
        last = Replica(2, lambda: connect(HOME, port, 2, 3))
        members = [rank_0, first, last]
        for member in members:
            member.joined.result(LIMIT)
        count = 5
        for _ in range(count):
            calls = [one.start(lambda comm: comm.allreduce(1)) for one in members]
            assert [call.result(LIMIT) for call in calls] == [3, 3, 3]
        before = list(kept)
        assert sum(map(len, before)) > 500
        with socket.create_connection((HOME, port), LIMIT) as thief:
            thief.settimeout(LIMIT)
            for data in before:
                thief.sendall(data)
            answer = b""
            with contextlib.suppress(OSError):
                while data := thief.recv(4096):  # until it is thrown out
                    answer += data
            assert len(answer) < 1000  # rank 0's part of the handshake at most
        calls = [one.start(lambda comm: comm.allreduce(1)) for one in members]
        assert [call.result(LIMIT) for call in calls] == [3, 3, 3]
        finish(*members)


# --- S16 ----------------------------------------------------------------------

frames_of_anything = st.lists(st.binary(max_size=300), max_size=4)


@st.composite
def near_misses(draw: st.DrawFn) -> list[bytes]:
    """A message of which a few bytes were changed, or the end was cut."""
    kind = draw(st.sampled_from(Kind))
    message = Message(kind, number=1 if kind.numbered else 0, body=draw(st.binary()))
    if kind is Kind.CHUNK:
        message.data = draw(st.binary(max_size=50))
    head, *rest = (bytearray(frame) for frame in pack(message))
    for _ in range(draw(st.integers(0, 3))):
        head[draw(st.integers(0, len(head) - 1))] = draw(st.integers(0, 255))
    return [bytes(head[: draw(st.integers(0, len(head)))]), *map(bytes, rest)]


@given(st.one_of(frames_of_anything, near_misses()))
@settings(max_examples=1000, deadline=None)
def test_s16_the_parser_takes_anything(frames: list[bytes]) -> None:
    with contextlib.suppress(ProtocolError):
        assert isinstance(parse(frames), Message)


@given(st.lists(st.one_of(frames_of_anything, near_misses()), max_size=8))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_s16_an_admitted_peer_says_anything(said: list[list[bytes]]) -> None:
    """Rank 0 stays up: the group goes on, or every call raises, and says why."""
    with ipc_port() as port:
        connect = functools.partial(zcoll.connect, HOME, port, 0, 2, timeout=LIMIT)
        rank_0 = Replica(0, connect)
        with insider(port, None) as other:
            other.join()
            rank_0.joined.result(LIMIT)
            for frames in said:
                if frames:
                    other.send_frames([*frames])
            other.send_frames(pack(Message(Kind.PING, seq=77)))
            while other.expect(Kind.PONG).seq != 77:
                pass
        call = rank_0.start(lambda comm: comm.barrier())
        error = call.exception(LIMIT)
        assert isinstance(error, zcoll.ReplicaLostError | zcoll.GroupError), error
        assert "loop has failed" not in str(error)
        rank_0.leave()
        rank_0.left.result(LIMIT)


def test_s16_rank_0_says_who_misbehaved() -> None:
    with ipc_port() as port:
        connect = functools.partial(zcoll.connect, HOME, port, timeout=LIMIT)
        honest = [Replica(rank, functools.partial(connect, rank, 3)) for rank in (0, 1)]
        with insider(port, None) as other:
            other.join(2, 3)
            for replica in honest:
                replica.joined.result(LIMIT)
            calls = [replica.start(lambda comm: comm.barrier()) for replica in honest]
            other.send_frames(malformed(random.Random(1), other.session))
            errors = [call.exception(LIMIT) for call in calls]
        for error in errors:
            assert isinstance(error, zcoll.ReplicaLostError)
            assert error.rank == 2
            assert "replica 2" in str(error)
            assert "sent a message that makes no sense" in str(error)
        # And rank 0's process goes on: the next group on the same port works.
        for replica in honest:
            replica.leave()
            replica.left.result(LIMIT)
        again = [Replica(rank, functools.partial(connect, rank, 2)) for rank in (0, 1)]
        sums = [replica.start(lambda comm: comm.allreduce(1)) for replica in again]
        assert [one.result(LIMIT) for one in sums] == [2, 2]
        finish(*again)


def test_s16_many_malformed_messages_of_an_admitted_peer() -> None:
    """The group is right all the same; the whole count is ``tools/fuzz``."""
    with victim(SECRET, size=4) as target, ThreadPoolExecutor(3) as pool:
        early = pool.submit(target.join, 1)  # and the group is not complete yet
        with insider(target.port, SECRET) as other:
            misbehave(other, SHORT // 3)
            before = target.memory
            misbehave(other, SHORT, seed=1)
            assert target.memory - before < 16 * MIB
        late = [pool.submit(target.join, rank) for rank in (2, 3)]
        members = [one.result(LIMIT) for one in (early, *late)]
        calls = [pool.submit(comm.allreduce, 1) for comm in members]
        assert [call.result(LIMIT) for call in calls] == [1, 1, 1]
        for done in [pool.submit(stop, comm) for comm in members]:
            done.result(LIMIT)
        told = target.finish()
    assert "dropped replica 2" in told
    assert "Traceback" not in told


def test_s16_many_malformed_inputs_to_the_bare_port() -> None:
    with victim(SECRET) as target:
        comm = target.join()
        flood(target.port, SHORT // 3)
        before = target.memory
        flood(target.port, SHORT, seed=1)
        assert target.memory - before < 16 * MIB
        assert comm.allreduce(1) == 1
        stop(comm)
        assert "Traceback" not in target.finish()


def test_s16_frames_without_end_are_not_kept() -> None:
    """A message of too many frames is read to its end, and thrown away."""
    with ipc_port() as port:
        connect = functools.partial(zcoll.connect, HOME, port, timeout=LIMIT)
        rank_0 = Replica(0, lambda: connect(0, 2))
        with insider(port, None) as other:
            other.send_frames([b"x" * 1000] * 10_000)
            other.send_frames(pack(hello(job="another")))
            other.expect(Kind.REJECT)
        finish(rank_0, Replica(1, lambda: connect(1, 2)))

"""S9, S10, S11: what strangers can make rank 0 spend."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from group import LIMIT, SECRET
from security.attacks import (
    flood,
    greeting,
    idle_connections,
    is_cut,
    push_frame,
    unfinished_frame,
)
from security.victim import Victim, stop, victim

from zcoll.wire import MAX_FRAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    import zcoll

MIB = 1 << 20


@pytest.fixture
def attacked() -> Iterator[tuple[Victim, zcoll.Communicator]]:
    """Give rank 0 in a process of its own, and rank 1 here."""
    with victim(SECRET) as one:
        comm = one.join()
        yield one, comm
        stop(comm)
        one.finish()


def test_s09_memory_before_authentication_is_bounded(
    attacked: tuple[Victim, zcoll.Communicator],
) -> None:
    target, comm = attacked
    before = target.memory
    taken = push_frame(target.port, 2 << 30, 256 * MIB)
    peak = target.memory
    for claim in (MAX_FRAME - 1, 2**40, 2**63, 2**64 - 1):
        taken = max(taken, push_frame(target.port, claim, 64 * MIB))
        peak = max(peak, target.memory)
    assert peak - before < 32 * MIB
    assert taken < 16 * MIB  # what the kernel's own buffers hold, and one frame
    assert comm.allreduce(7) == 7


def test_s09_many_connections_do_not_add_up(
    attacked: tuple[Victim, zcoll.Communicator],
) -> None:
    target, _ = attacked
    before = target.memory
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: push_frame(target.port, 2 << 30, 64 * MIB), range(64)))
    assert target.memory - before < 32 * MIB


def test_s10_idle_connections_do_not_lock_the_group_out() -> None:
    with victim(SECRET, size=3, files=128) as target:
        with ThreadPoolExecutor(2) as pool:
            early = pool.submit(target.join, 1)
            while not is_listening(target.port):
                time.sleep(0.01)
            before = target.memory
            with idle_connections(target.port, 1500) as held:
                dribble = socket.create_connection(("127.0.0.1", target.port), LIMIT)
                deadline = time.monotonic() + 20
                # Those that were accepted are cut, though they dribble.
                while not any(is_cut(one) for one in held[:50]):
                    assert time.monotonic() < deadline
                    time.sleep(0.2)
                dribble.close()
                grown = target.memory - before
            ended = time.monotonic()
            last = pool.submit(target.join, 2)
            members = [early.result(LIMIT), last.result(LIMIT)]
            calls = [pool.submit(comm.allreduce, 1) for comm in members]
            assert [call.result(LIMIT) for call in calls] == [1, 1]
            assert time.monotonic() - ended < 15
            assert grown < 50 * MIB
            for done in [pool.submit(stop, comm) for comm in members]:
                done.result(LIMIT)
        target.finish()


def test_s10_a_connection_that_dribbles_is_cut(
    attacked: tuple[Victim, zcoll.Communicator],
) -> None:
    target, _ = attacked
    with socket.create_connection(("127.0.0.1", target.port), LIMIT) as one:
        one.setblocking(False)
        start = time.monotonic()
        for byte in greeting() * 10:
            if is_cut(one):
                break
            try:
                one.send(bytes([byte]))
            except OSError:
                break
            time.sleep(0.2)
        assert time.monotonic() - start < 15  # HANDSHAKE_IVL is 10 s


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), LIMIT).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize("held_by", ["sleep", "hold"])
def test_s11_a_flood_while_rank_0_reduces(
    held_by: str, attacked: tuple[Victim, zcoll.Communicator]
) -> None:
    """``sleep`` holds the reduce function up, ``hold`` the whole interpreter."""
    target, comm = attacked
    before = target.memory
    call = comm.allreduce_async((held_by, 3.0))
    attack = threading.Thread(target=flood, args=(target.port, 3000), daemon=True)
    start = time.monotonic()
    attack.start()
    assert call.result(LIMIT) == held_by  # type: ignore[comparison-overlap]
    assert time.monotonic() - start < 8
    attack.join(LIMIT)
    assert not attack.is_alive()
    assert comm.allreduce(5, timeout=LIMIT) == 5
    assert target.memory - before < 50 * MIB


def test_s09_a_stranger_holds_one_frame_for_each_connection(
    attacked: tuple[Victim, zcoll.Communicator],
) -> None:
    """The last byte of the largest frame never comes."""
    target, comm = attacked
    before, count = target.memory, 32
    with contextlib.ExitStack() as held:
        for _ in range(count):
            held.enter_context(unfinished_frame(target.port, MAX_FRAME - 1))
        assert comm.allreduce(3) == 3
        time.sleep(0.5)  # for what is still on its way to be read
        assert target.memory - before < count * MAX_FRAME + 8 * MIB

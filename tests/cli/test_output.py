from __future__ import annotations

import os
import pty
import random
import re
import select
import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from launch import LIMIT, Launch, lines_of, read_lines

from zcoll.cli.output import LONGEST, Outlet, Pump, prefix_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOW, HIGH = bytes(range(ord("\n") + 1)), bytes(range(ord("\n") + 1, 256))


@contextmanager
def pumping(target: Path | int, ranks: int) -> Iterator[tuple[Pump, list[int]]]:
    """Give a running pump and the writing ends of its pipes."""
    fd = target if isinstance(target, int) else os.open(target, os.O_RDWR | os.O_CREAT)
    pipes = [os.pipe() for _ in range(ranks)]
    plain = [prefix_of(str(rank), colour=False) for rank in range(ranks)]
    ends = [reader for reader, _ in pipes]
    pump = Pump(Outlet(fd), zip(plain, ends, strict=True), "zcoll run")
    pump.start()
    yield pump, [writer for _, writer in pipes]
    pump.finish()
    pump.join(LIMIT)
    assert not pump.is_alive()
    if fd != target:
        os.close(fd)


def write_and_close(fd: int, *parts: bytes) -> None:
    with open(fd, "wb", buffering=0) as file:
        for part in parts:
            rest = memoryview(part)
            while rest:
                rest = rest[file.write(rest) or 0 :]


def read_until(fd: int, what: bytes) -> bytes:
    """Read from a terminal until something has come."""
    seen = b""
    while what not in seen:
        assert select.select([fd], [], [], LIMIT)[0], seen
        seen += os.read(fd, 65536)
    return seen


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    os.set_blocking(ours, True)
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([b"one\n"], b"[0] one\n"),
        ([b"one\ntwo\n"], b"[0] one\n[0] two\n"),
        ([b"o", b"n", b"e\nt", b"wo\n"], b"[0] one\n[0] two\n"),
        ([b"\n\n"], b"[0] \n[0] \n"),
        ([b"no end"], b"[0] no end"),
        ([b"x\nno end"], b"[0] x\n[0] no end"),
        ([b"\r 1%\r 2%", b"\r 3%\n"], b"[0] \r 1%\r 2%\r 3%\n"),
        ([b"dos\r", b"\nend\r\n"], b"[0] dos\r\n[0] end\r\n"),
        ([bytes(range(256))], b"[0] " + LOW + b"[0] " + HIGH),
        ([b"\x00\xff\n\xc3", b"\xa4\n"], b"[0] \x00\xff\n[0] \xc3\xa4\n"),
        ([], b""),
    ],
)
def test_lines_of_one_replica(
    tmp_path: Path, parts: list[bytes], expected: bytes
) -> None:
    with pumping(tmp_path / "out", 1) as (_, (pipe,)):
        write_and_close(pipe, *parts)
    assert (tmp_path / "out").read_bytes() == expected


def test_a_line_is_held_until_it_is_whole(tmp_path: Path) -> None:
    with pumping(tmp_path / "out", 2) as (_, (first, second)):
        os.write(first, b"be")
        write_and_close(second, b"other\nlast")
        write_and_close(first, b"gin\n")
    output = (tmp_path / "out").read_bytes()
    assert sorted(output.splitlines()) == [b"[0] begin", b"[1] last", b"[1] other"]


def test_a_line_beyond_all_measure(tmp_path: Path) -> None:
    parts = [b"x" * LONGEST, b"y" * LONGEST, b"z\n"]
    with pumping(tmp_path / "out", 1) as (_, (pipe,)):
        write_and_close(pipe, *parts)
    assert (tmp_path / "out").read_bytes() == b"[0] " + b"".join(parts)


@pytest.mark.parametrize("shared", [True, False])
def test_two_streams_in_one_place(tmp_path: Path, shared: bool) -> None:
    with open(tmp_path / "out", "wb") as file:
        first = Outlet(file.fileno())
        second = Outlet(os.dup(file.fileno()), twin=first if shared else None)
        first.write(b"[0] ", b"unfinished")
        second.write(b"[0] ", b"error\n")
    cut = b"\n" if shared else b""
    expected = b"[0] unfinished" + cut + b"[0] error\n"
    assert (tmp_path / "out").read_bytes() == expected


def test_a_terminal_shows_what_is_unfinished(terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    with pumping(theirs, 2) as (pump, (first, second)):
        os.write(first, b"name? ")
        assert read_until(ours, b"?") == b"[0] name? "
        os.write(second, b"line\n")
        assert read_until(ours, b"line") == b"\r\n[1] line\r\n"
        os.write(first, b"Ann\n")
        assert read_until(ours, b"Ann\r\n") == b"[0] Ann\r\n"
        os.write(first, b"\r 1%\r")
        assert read_until(ours, b"1%").endswith(b"[0]  1%")
        os.write(second, b"\r 9%")
        assert read_until(ours, b"9%") == b"\r[1]  9%"
        os.write(first, b" 2%\r\n")
        assert b"\r[0]  2%" in read_until(ours, b"2%")
        pump.say("the end")
        assert b"zcoll run: the end" in read_until(ours, b"end")
        os.close(first)
        os.close(second)


def test_prefixes_and_colours() -> None:
    assert prefix_of("12", colour=False) == b"[12] "
    assert re.fullmatch(rb"\x1b\[\d+m\[12\]\x1b\[0m ", prefix_of("12", colour=True))
    assert prefix_of("auto-1", colour=False) == b"[auto-1] "
    assert prefix_of("auto-1", colour=True) == prefix_of("1", colour=True).replace(
        b"[1]", b"[auto-1]"
    )


@pytest.mark.parametrize(
    ("env", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_colour_is_for_terminals_that_want_it(
    launch: Launch, terminal: tuple[int, int], env: dict[str, str], coloured: bool
) -> None:
    ours, theirs = terminal
    script = "import sys; print('out'); print('err', file=sys.stderr)"
    process = launch("-n", "1", script=script, stdout=theirs, env=env)
    _, errors = process.communicate(timeout=LIMIT)
    assert errors == b"[0] err\n"
    assert (b"\x1b[" in read_until(ours, b"out")) is coloured


BLAST = """
import os, random, sys
rank = int(os.environ["ZCOLL_REPLICA_RANK"])
for name in ("stdout", "stderr"):
    data = random.Random(f"{rank} {name}").randbytes(1_500_000)
    data = data.replace(b"\\n", b"\\n" if rank % 2 else b"\\r") + b"\\n"
    file = getattr(sys, name).buffer
    while data:
        file.write(data[:5000]); file.flush(); data = data[5000:]
"""


def test_a_slow_reader_loses_nothing(launch: Launch) -> None:
    process = launch("-n", "4", script=BLAST)
    output: dict[str, bytes] = {}

    def read_slowly(name: str) -> None:
        file = getattr(process, name)
        time.sleep(1.2 if name == "stdout" else 0)  # longer than the last drain
        parts = []
        while part := file.read(300_000):
            parts.append(part)
            time.sleep(0.01)
        output[name] = b"".join(parts)

    readers = [
        threading.Thread(target=read_slowly, args=(name,))
        for name in ("stdout", "stderr")
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(LIMIT)
    assert process.wait(LIMIT) == 0
    for name in ("stdout", "stderr"):
        whole = b""
        for rank in range(4):
            data = random.Random(f"{rank} {name}").randbytes(1_500_000)
            data = data.replace(b"\n", b"\n" if rank % 2 else b"\r") + b"\n"
            got = b"".join(
                line[4:] + b"\n"
                for line in output[name].split(b"\n")
                if line.startswith(b"[%d] " % rank)
            )
            assert got == data
            whole += data
        assert len(output[name]) == len(whole) + 4 * whole.count(b"\n")


def test_each_replica_keeps_its_order(launch: Launch) -> None:
    script = "for i in range(2000): print(i)"
    output, _ = launch("-n", "3", script=script).communicate(timeout=LIMIT)
    expected = b"".join(b"%d\n" % i for i in range(2000))
    assert [lines_of(output, rank) for rank in range(3)] == [expected] * 3


def test_a_reader_that_has_gone(launch: Launch) -> None:
    script = "print('ready')\nwhile True: print('x' * 1000)"
    process = launch("-n", "2", script=script)
    read_lines(process, 1)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode in (1, 120)
    assert b"BrokenPipeError" in errors


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_an_error(launch: Launch) -> None:
    script = "import os, sys; print('x'); os._exit(0)"
    with open("/dev/full", "wb") as full:
        process = launch("-n", "1", script=script, stdout=full.fileno())
        _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 1
    assert b"standard output: No space left on device" in errors


def test_a_stalled_reader_does_not_hold_up_the_signals(launch: Launch) -> None:
    script = (
        "import sys\nprint('ready', file=sys.stderr)\nwhile True: print('x' * 1000)"
    )
    process = launch("-n", "2", script=script)
    assert process.stderr is not None
    for _ in range(2):
        assert process.stderr.readline().endswith(b"ready\n")
    process.send_signal(signal.SIGINT)
    lines = iter(process.stderr.readline, b"")
    assert any(b"passed on" in line for line in lines)
    assert any(b"KeyboardInterrupt" in line for line in lines)
    process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + LIMIT
    while process.poll() is None and time.monotonic() < deadline:
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    # A last one may have come when Python had its handlers taken down.
    assert process.returncode in (130, -signal.SIGINT)


def test_without_standard_streams(tmp_path: Path, launch: Launch) -> None:
    script = f"print('x'); open({str(tmp_path / 'done')!r}, 'w').close()"
    closing = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    process = launch("-n", "1", script=script, within=closing)
    assert process.wait(LIMIT) == 0
    assert (tmp_path / "done").exists()
    assert process.stdout is not None
    assert process.stdout.read() == b""

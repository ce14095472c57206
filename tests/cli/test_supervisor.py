from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest
from launch import LIMIT, START, Launch, finish, read_lines, wait_gone, wait_ready

from zcoll.cli.processes import Replica
from zcoll.cli.supervisor import SETTLE_TOLD, blame


@pytest.mark.parametrize(
    ("act", "code", "says"),
    [
        ("sys.exit(3)", 3, "exited with code 3"),
        ("sys.exit('no')", 1, "exited with code 1"),
        ("os.kill(os.getpid(), 9)", 137, "killed by SIGKILL (out of memory? "),
        ("os.kill(os.getpid(), 11)", 139, "killed by SIGSEGV"),
    ],
)
def test_one_fails(launch: Launch, act: str, code: int, says: str) -> None:
    script = START + f"if rank == 1: {act}\nready()\nsignal.pause()"
    process = launch("-n", "3", script=script)
    pids = [pid for (pid,) in wait_ready(process, 2)]
    got, errors = finish(process)
    assert got == code
    (line,) = [line for line in errors.splitlines() if "zcoll run: " in line]
    assert "zcoll run: replica 1 (pid " in line
    assert says in line
    assert line.endswith("; ending the others")
    wait_gone(pids)


def test_success_and_an_early_end(launch: Launch) -> None:
    assert finish(launch("-n", "4", script="")) == (0, "")


@pytest.mark.parametrize("told_first", [True, False])
def test_who_was_merely_told_is_not_blamed(launch: Launch, told_first: bool) -> None:
    script = START + (
        "first = os.path.dirname(os.environ['ZCOLL_RUN_REPORT']) + '/first'\n"
        f"if (rank == 2) is {told_first}:\n"
        "    while not os.path.exists(first): time.sleep(0.01)\n"
        "    time.sleep(0.1)\n"
        "else:\n"
        "    open(first, 'w').close()\n"
        "if rank == 2: sys.exit(7)\n"
        "told()\n"
        "sys.exit(1)"
    )
    code, errors = finish(launch("-n", "3", script=script))
    assert code == 7
    assert "replica 2 (pid " in errors
    assert errors.count("zcoll run: ") == 1


def test_all_were_told_of_a_failure_on_another_host(launch: Launch) -> None:
    script = START + "if rank == 1: told(); sys.exit(5)\nsignal.pause()"
    began = time.monotonic()
    code, errors = finish(launch("-n", "2", script=script))
    assert code == 5
    assert time.monotonic() - began > SETTLE_TOLD
    assert "exited with code 5, told of a failure elsewhere; ending the" in errors


def test_blame_prefers_the_untold_then_the_earliest() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(LIMIT)

    def replica(rank: int, ended: float, told: bool) -> Replica:
        return Replica(str(rank), process, ended=ended, told=told)

    told = [replica(0, 1.0, True), replica(1, 1.1, True)]
    own = [replica(2, 1.3, False), replica(3, 1.2, False)]
    assert blame(told + own) is own[1]
    assert blame(told) is told[0]
    assert blame([]) is None


def test_term_then_kill_children_included(launch: Launch) -> None:
    stubborn = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    script = START + (
        f"import signal\n{stubborn}\n"
        f"ready(child('import signal; {stubborn}; signal.pause()'))\n"
        "if rank == 0: os.kill(os.getpid(), signal.SIGSTOP)\n"
        "if rank == 1: time.sleep(0.3); sys.exit(4)\n"
        "signal.pause()"
    )
    process = launch("-n", "3", "--grace", "0.6", script=script)
    pids = wait_ready(process, 3)
    code, errors = finish(process)
    assert code == 4
    assert "not ended within 0.6 s: killing replicas 0, 2" in errors
    wait_gone(pid for pair in pids for pid in pair)


def test_term_gives_time_for_good_order(launch: Launch) -> None:
    script = START + (
        "def leave(*_): time.sleep(0.3); print('saved'); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, leave)\n"
        "ready()\n"
        "if rank == 1: sys.stdin.read(); sys.exit(6)\n"
        "time.sleep(60)"
    )
    process = launch("-n", "2", script=script)
    output, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 6
    assert b"[0] saved\n" in output


@pytest.mark.parametrize(
    ("signum", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
)
def test_a_signal_is_passed_on_once(
    launch: Launch, signum: signal.Signals, code: int
) -> None:
    script = START + (
        "got = []\n"
        "def count(signum, _): got.append(signum); print('got', signum)\n"
        "for s in (1, 2, 15): signal.signal(s, count)\n"
        "ready()\n"
        "while not got: time.sleep(0.01)\n"
        "time.sleep(0.3)\n"
        "signal.signal(int(sys.argv[1]), signal.SIG_DFL)\n"
        "os.kill(os.getpid(), int(sys.argv[1]))"
    )
    process = launch("-n", "2", script=script, args=(str(int(signum)),))
    wait_ready(process, 2)
    process.send_signal(signum)
    process.send_signal(signum)  # as `timeout` does, which also signals its group
    output, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == code
    got = [f"[{rank}] got {int(signum)}" for rank in range(2)]
    assert sorted(output.decode().splitlines()) == got
    assert f"{signum.name}: passed on to the replicas".encode() in errors
    assert errors.count(b"zcoll run: ") == 1


def test_a_signal_that_all_obey_is_no_failure(launch: Launch) -> None:
    script = START + (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\nready()\ntime.sleep(60)"
    )
    process = launch("-n", "2", script=script)
    wait_ready(process, 2)
    process.terminate()
    assert finish(process)[0] == 0


@pytest.mark.parametrize(
    ("other", "expected"), [("leave", 85), ("signal.SIG_DFL", 143)]
)
def test_the_exit_code_after_an_interruption(
    launch: Launch, other: str, expected: int
) -> None:
    script = START + (
        "def leave(*_): sys.exit(85)\n"
        f"signal.signal(signal.SIGTERM, leave if rank else {other})\n"
        "ready()\n"
        "time.sleep(60)"
    )
    process = launch("-n", "2", script=script)
    wait_ready(process, 2)
    process.terminate()
    code, errors = finish(process)
    assert code == expected
    assert ("exited with code 85" in errors) is (expected == 85)


def test_ctrl_c_reaches_children_and_a_second_one_kills(launch: Launch) -> None:
    script = START + (
        "pid = subprocess.Popen(['sleep', '60']).pid\n"
        "signal.signal(signal.SIGINT, lambda *_: print('not yet'))\n"
        "ready(pid)\n"
        "os.waitpid(pid, 0)\n"
        "print('child ended')\n"
        "while True: time.sleep(60)"
    )
    process = launch("-n", "2", script=script)
    pids = wait_ready(process, 2)
    process.send_signal(signal.SIGINT)
    read_lines(process, 4)
    time.sleep(0.25)  # sooner, it would be the same press
    process.send_signal(signal.SIGINT)
    code, errors = finish(process)
    assert code == 130
    assert "SIGINT: passed on to the replicas (again: kill them)" in errors
    assert "Ctrl-C again: killing replicas 0, 1" in errors
    wait_gone(pid for pair in pids for pid in pair)


def test_what_ignores_an_interruption_is_killed_after_the_first_end(
    launch: Launch,
) -> None:
    script = START + (
        "if rank: signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "ready()\n"
        "while True: time.sleep(60)"
    )
    process = launch("-n", "2", "--grace", "0.3", script=script)
    wait_ready(process, 2)
    process.terminate()
    code, errors = finish(process)
    assert code == 143
    assert "not ended within 0.3 s: killing replica 1" in errors


def test_a_grandchild_does_not_hold_up_the_end(launch: Launch) -> None:
    code = "import time\nwhile True: print('noise', flush=True); time.sleep(0.01)"
    script = START + f"pid = child({code!r})\nready(pid)\nprint('end', end='')"
    process = launch("-n", "1", script=script)
    output, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 0
    (line,) = [line for line in output.splitlines() if b"ready" in line]
    pid = int(line.split()[-1])
    assert b"end" in output
    assert b"zcoll run" not in errors
    wait_gone([pid])  # its pipe is closed

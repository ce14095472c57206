from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from launch import LIMIT, START, Launch, finish, wait_gone, wait_ready

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux can do this"
)


def test_orphans_are_adopted_and_reaped(launch: Launch) -> None:
    script = START + (
        "code = 'import subprocess, sys; '"
        ' \'print(subprocess.Popen(["sleep", "0.2"], stdout=-3, stderr=-3).pid)\'\n'
        "orphan = subprocess.run("
        "[sys.executable, '-c', code], capture_output=True).stdout\n"
        "ready(int(orphan), os.getppid())\n"
        "sys.stdin.read()"
    )
    process = launch("-n", "1", script=script, stdin=subprocess.PIPE)
    ((_, orphan, parent),) = wait_ready(process, 1)
    assert parent == process.pid
    deadline = time.monotonic() + LIMIT
    while psutil.pid_exists(orphan) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not psutil.pid_exists(orphan)
    assert len(psutil.Process(process.pid).children()) == 1
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None
    assert finish(process)[0] == 0


def test_the_replicas_end_with_a_killed_launcher(
    launch: Launch, tmp_path: Path
) -> None:
    # Over TCP and with its directory here, because it cannot clean up.
    env = {"TMPDIR": str(tmp_path)}
    script = START + "ready()\nsignal.pause()"
    process = launch("-n", "2", "--tcp", script=script, env=env)
    pids = [pid for (pid,) in wait_ready(process, 2)]
    process.kill()
    wait_gone(pids)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a pid namespace")
def test_as_the_first_process_of_a_container(launch: Launch) -> None:
    probe = ["unshare", "--pid", "--fork", "--kill-child", "true"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("no pid namespaces here")
    script = START + "ready(os.getppid())\nsignal.pause()"
    within = ["unshare", "--pid", "--fork", "--kill-child"]
    process = launch("-n", "2", script=script, within=within)
    assert [parent for _, parent in wait_ready(process, 2)] == [1, 1]
    (first,) = psutil.Process(process.pid).children()
    first.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 143

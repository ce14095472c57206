"""When this process started, and when it was in the group."""

from __future__ import annotations

import time

import psutil
from report import report

import zcoll

zcoll.initialize()
joined = time.time()
report(zcoll.replica_rank(), [psutil.Process().create_time(), joined])
zcoll.teardown()

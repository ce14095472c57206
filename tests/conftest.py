"""What all tests need."""

from __future__ import annotations

import signal

# A shell starts what runs in its background with Ctrl-C ignored, and everything that
# this process starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

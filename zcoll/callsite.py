"""Where in the user's code a call was made."""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def call_site(depth: int = 0) -> str:
    """The innermost line of the caller outside this package: ``train.py:88 main``.

    Args:
        depth: How many frames above this function's caller are known to be within.
    """
    return site_of(sys._getframe(1 + depth))


def site_of(frame: FrameType) -> str:
    """The innermost line of a stack outside this package."""
    code = frame.f_code
    while code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame = frame.f_back
        code = frame.f_code
    return f"{_short(code.co_filename)}:{frame.f_lineno} {code.co_name}"


def program_site(frame: FrameType) -> str:
    """The innermost line of a stack that is the program's own, if one is.

    That of a library which it called says less: ``threading.py:331 wait``.
    """
    inner: FrameType | None = frame
    while inner is not None and _is_library(inner.f_code.co_filename):
        inner = inner.f_back
    return site_of(frame if inner is None else inner)


@functools.lru_cache(maxsize=1024)
def _is_library(path: str) -> bool:
    return path.startswith((_PACKAGE, "<frozen ", *_libraries()))


@functools.cache
def _libraries() -> tuple[str, ...]:
    import sysconfig  # noqa: PLC0415 - only for reports

    names = "stdlib", "purelib", "platlib"
    return tuple(sysconfig.get_path(name) + os.sep for name in names)


def is_own(frame: FrameType) -> bool:
    """Whether a frame is one of this package's."""
    return frame.f_code.co_filename.startswith(_PACKAGE)


@functools.lru_cache(maxsize=1024)
def _short(path: str) -> str:
    """A file as people name it: relative to here, if it is below."""
    here = os.getcwd() + os.sep
    return path[len(here) :] if path.startswith(here) else path

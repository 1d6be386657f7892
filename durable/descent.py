"""Descent: a process ends with the one that has started it."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def end_with_parent(how: signal.Signals = signal.SIGTERM) -> None:
    """Have the kernel end this process when its parent is killed; others than Linux have no such thing."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, how)

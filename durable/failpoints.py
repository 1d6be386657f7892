"""Failpoints: places where a test can have this process killed, to see that nothing is lost there.

`DURABLE_FAILPOINTS=claim.after=/some/file` kills the process at that place if it can remove that file, so a file is
one kill, whichever process comes first. Several are separated by commas. Never set it outside of tests.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path


def _armed() -> dict[str, Path]:
    pairs = (pair.partition("=") for pair in os.environ.get("DURABLE_FAILPOINTS", "").split(",") if pair)
    return {name.strip(): Path(file.strip()) for name, _, file in pairs}


_files = _armed()


def failpoint(name: str) -> None:
    """Die here, if a test wants it."""
    if _files and name in _files:
        _die_once(_files[name])


def _die_once(file: Path) -> None:
    try:
        file.unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)

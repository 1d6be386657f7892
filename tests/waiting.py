"""Waiting for what must be seen, in the place of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE = 60.0


def until(condition: Callable[[], Any], what: str, *, seconds: float = PATIENCE) -> Any:
    """Wait until something can be seen, and return it."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"after {seconds:g} s it is still not so that {what}"
        time.sleep(0.02)

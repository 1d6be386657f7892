"""Isolation: a step under suspicion of killing its process runs alone in it, so that nobody else is blamed for it.

All steps that a process was running when it died count a crash, the innocent ones too. The last time before a step's
workflow would be paused for that, the step runs with nothing beside it: if the process dies again, it was the one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition

PATIENCE = 30.0
"""Seconds for which a step waits for others at most: one that takes long must not keep a process from its work."""


class Isolation:
    """Who runs beside whom in this process."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._changed = Condition()
        self._patience = patience
        self._running = 0
        self._wanted = 0
        self._alone = 0

    @property
    def busy(self) -> bool:
        """Whether anybody runs now, or is about to: from before the claim to after the settle."""
        with self._changed:
            return self._running + self._alone > 0

    @contextmanager
    def beside_others(self) -> Iterator[None]:
        """Run beside others, though not beside one that is to be alone."""
        with self._changed:
            self._await(lambda: not self._wanted and not self._alone)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Run alone: whoever runs ends first, and nobody begins before this has ended."""
        with self._changed:
            self._wanted += 1
            self._await(lambda: not self._running and not self._alone)
            self._wanted -= 1
            self._alone += 1
        try:
            yield
        finally:
            with self._changed:
                self._alone -= 1
                self._changed.notify_all()

    def _await(self, condition: Callable[[], bool]) -> None:
        if not condition():
            self._changed.wait_for(condition, timeout=self._patience)

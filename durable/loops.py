"""Loops: what a process does again and again beside its work, whatever goes wrong in between."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Event, Thread

log = logging.getLogger("durable.loops")

Tick = Callable[[], float]
_LONGEST_PAUSE = 5.0
_SLICE = 0.2
"""Seconds after which a loop that waits looks whether a signal handler has told it to stop."""


class Loop:
    """Calls `tick` for ever, which does a bit of work and returns for how many seconds there is nothing to do.

    Errors are logged and waited out, for `longest_pause` at most: a loop ends only when it is told to.
    """

    def __init__(
        self,
        name: str,
        tick: Tick,
        *,
        rest: Callable[[float], None] | None = None,
        longest_pause: float = _LONGEST_PAUSE,
    ) -> None:
        self.name = name
        self._tick = tick
        self._rest = rest or self._wait
        self._longest_pause = longest_pause
        self._told_to_stop = False
        self._woken = Event()
        self._failures = 0
        self._thread: Thread | None = None

    def start(self) -> None:
        """Go on in a thread, if it does not already."""
        if self._told_to_stop or (self._thread is not None and self._thread.is_alive()):
            return
        self._thread = Thread(target=self._run_regardless, name=f"durable-{self.name}", daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Go on in this thread, until `stop`."""
        while not self._told_to_stop:
            try:
                seconds = self._tick()
                self._failures = 0
                if seconds > 0 and not self._told_to_stop:
                    self._rest(seconds)
            except Exception as error:
                self._recover(error)

    def _run_regardless(self) -> None:
        """Come back even from what is meant to end a program: nobody would notice that this thread is gone."""
        while not self._told_to_stop:
            try:
                self.run()
            except BaseException as error:
                self._recover(error)

    def stop(self, seconds: float = 5.0) -> None:
        """End it, and wait for its end."""
        self._told_to_stop = True
        self._woken.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def tell_to_stop(self) -> None:
        """End it soon; safe in a signal handler, which may find this very thread inside of an Event and its lock."""
        self._told_to_stop = True

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._told_to_stop and (left := deadline - time.monotonic()) > 0:
            self._woken.wait(min(left, _SLICE))

    def _recover(self, error: BaseException) -> None:
        pause = min(0.25 * 2**self._failures, self._longest_pause)
        self._failures = min(self._failures + 1, 10)
        log.warning("the %s failed and goes on in %.2g s: %s", self.name, pause, _first_line(error))
        log.debug("the %s failed", self.name, exc_info=error)
        self._wait(pause)


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"

"""The farewell of a worker process: running steps get their time, and what does not end in it is given back."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from functools import partial

from dramatiq.common import iter_queue
from dramatiq.worker import Worker

from durable.guard import Cause
from durable.loops import Loop
from durable.runtime import Runtime

log = logging.getLogger("durable.worker")

_LOOK_EVERY = 0.05
_LAST_WORDS = 2.0
"""Seconds in which bodies that were interrupted may end by themselves."""


class Farewell:
    """The last seconds of a worker that was told to stop: what does not end in time is given back to others."""

    def __init__(self, now: Runtime, worker: Worker, leave: Callable[[], object]) -> None:
        self._runtime = now
        self._worker = worker
        self._leave = leave
        self._interrupt_at = time.monotonic() + now.settings.shutdown_grace.total_seconds()

    def loop(self) -> Loop:
        """Return the loop that watches what still runs."""
        return Loop("farewell", self.tick)

    def tick(self) -> float:
        """Return what was fetched and not begun, and look at what still runs."""
        _quietly(self._return_messages)
        held = self._runtime.guard.held
        late = time.monotonic() - self._interrupt_at
        if late >= 0:
            for watch in held:
                watch.interrupt(Cause.SHUTDOWN)
        if late >= _LAST_WORDS and (held or self._runtime.isolation.busy):
            self._leave_behind()
        return _LOOK_EVERY

    def _leave_behind(self) -> None:
        """End the process in spite of threads that hang in calls which nothing can interrupt.

        Such a call may be the claim itself, which waits for a row that others have locked: then nothing is held yet.
        """
        for watch in self._runtime.guard.held:
            if watch.abandon is not None:
                _quietly(partial(watch.abandon, Cause.SHUTDOWN))
        _quietly(self._leave)
        os._exit(0)

    def _return_messages(self) -> None:
        for item in iter_queue(self._worker.work_queue):
            self._worker.consumers[item.message.queue_name].requeue_messages([item.message])


def _quietly(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception as error:
        log.warning("while the worker ends: %s", error)

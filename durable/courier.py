"""The courier: sends messages from a thread of its own, so that nobody who commits ever waits for the broker."""

from __future__ import annotations

import atexit
import logging
import os
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread

from durable.broker import Patient
from durable.store.rows import Letter

log = logging.getLogger("durable.courier")

BATCH = 1000
RING_WITHIN = timedelta(seconds=5)
"""The relay looks at least this often by itself; for what falls due earlier it is woken."""
_PAUSE_AFTER_FAILURE = 1.0


class Courier:
    """Sends what was committed. What it cannot send, or has not sent when its process dies, the relay sends."""

    def __init__(self, broker: Patient) -> None:
        self._broker = broker
        self._letters: SimpleQueue[Letter | Event] = SimpleQueue()
        self._lock = Lock()
        self._process: int | None = None
        self._silent_until = 0.0
        self._failing = False

    def send(self, letters: Iterable[Letter]) -> None:
        """Send messages soon; returns at once."""
        self._ensure_thread()
        for letter in letters:
            self._letters.put(letter)

    def flush(self, seconds: float = 2.0) -> bool:
        """Wait until everything given so far was sent, and tell whether it was."""
        if self._process != os.getpid():
            return True
        done = Event()
        self._letters.put(done)
        return done.wait(seconds)

    def _ensure_thread(self) -> None:
        """Start the thread, once in each process: a fork does not bring it along."""
        if self._process == os.getpid():
            return
        with self._lock:
            if self._process != os.getpid():
                self._letters = SimpleQueue()
                Thread(target=self._work, name="durable-courier", daemon=True).start()
                atexit.register(self.flush)
                self._process = os.getpid()

    def _work(self) -> None:
        while True:
            given = self._gather()
            self._send([item for item in given if isinstance(item, Letter)])
            for item in given:
                if isinstance(item, Event):
                    item.set()

    def _gather(self) -> list[Letter | Event]:
        """Return whatever has come while the last batch was sent, no timer involved."""
        given = [self._letters.get()]
        while len(given) < BATCH:
            try:
                given.append(self._letters.get_nowait())
            except Empty:
                break
        return given

    def _send(self, letters: Sequence[Letter]) -> None:
        if not letters or time.monotonic() < self._silent_until:
            return
        try:
            self._deliver(letters)
        except Exception as error:
            self._note_failure(error)
        else:
            self._note_success()

    def _deliver(self, letters: Sequence[Letter]) -> None:
        due = [letter for letter in letters if not letter.due_in]
        if due:
            self._broker.deliver(due)
        if any(timedelta() < letter.due_in < RING_WITHIN for letter in letters):
            self._broker.ring()

    def _note_failure(self, error: Exception) -> None:
        """Leave the broker alone for a moment, and say so once: it may be away for long."""
        self._silent_until = time.monotonic() + _PAUSE_AFTER_FAILURE
        level = logging.DEBUG if self._failing else logging.WARNING
        log.log(level, "the broker does not answer, the relay sends later what is due now: %s", error)
        self._failing = True

    def _note_success(self) -> None:
        if self._failing:
            log.info("the broker answers again")
        self._failing = False

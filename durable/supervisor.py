"""The supervisor: keeps worker commands running, each with one process, so that one that dies takes no other along."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from durable.descent import end_with_parent

log = logging.getLogger("durable.supervisor")

MISCONFIGURED = (2, 3)
"""Dramatiq's exit codes for what another start would not mend: a module that cannot be imported, no broker."""
_UNWATCHED = "1000"
"""Milliseconds for which Dramatiq does not look whether its process, which begins, has died; else half a minute."""
_LOOK_EVERY = 0.2
_HEALTHY_AFTER = 10.0
_LONGEST_PAUSE = 30.0
_NOT_WATCHED = {"__pycache__", "node_modules", "site-packages"}


@dataclass
class Child:
    """One worker command, started again whenever it ends."""

    command: Sequence[str]
    environment: Mapping[str, str]
    failures: int = 0
    started_at: float = 0.0
    next_start: float = 0.0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start it, in a session of its own: Ctrl-C reaches only the supervisor, which passes it on in good order."""
        self.started_at = time.monotonic()
        self.process = subprocess.Popen(
            self.command,
            env=dict(self.environment),
            start_new_session=True,
            preexec_fn=end_with_parent if sys.platform == "linux" else None,
        )

    @property
    def is_healthy(self) -> bool:
        """Whether it has been running for a while."""
        return self.process is not None and time.monotonic() - self.started_at > _HEALTHY_AFTER

    def look(self) -> int | None:
        """Return the exit code if it has just ended, and plan its next start."""
        code = None if self.process is None else self.process.poll()
        if code is None:
            return None
        self.failures = 0 if self.is_healthy or code == 0 else self.failures + 1
        pause = 0.0 if self.failures == 0 else min(0.5 * 2**self.failures, _LONGEST_PAUSE)
        self.next_start = time.monotonic() + pause
        self.process = None
        return code

    def send(self, name: signal.Signals) -> None:
        """Pass a signal on."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(name)

    def kill(self) -> None:
        """End it at once, and the process that it has started."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def refresh(self) -> None:
        """Have it start anew, at once if it has ended: what was wrong with it may have changed."""
        self.failures, self.next_start = 0, 0.0
        self.send(signal.SIGTERM)


class Supervisor:
    """Runs worker commands until it is told to stop."""

    def __init__(
        self, *, processes: int, threads: int, queues: Sequence[str] = (), watched: Path | None = None
    ) -> None:
        command = [sys.executable, "-m", "dramatiq", "durable.actors", "-p", "1", "-t", str(threads)]
        command += ["--worker-fork-timeout", _UNWATCHED]
        command += ["-Q", *queues] if queues else []
        self._children = [Child(command, os.environ) for _ in range(processes)]
        self._watched = watched
        self._told_to_stop = False

    def run(self) -> int:
        """Supervise, and return the exit code: that of a worker which can never start, else 0."""
        code = 0
        changes = _Changes(self._watched)
        with self._signals():
            while not self._told_to_stop:
                time.sleep(_LOOK_EVERY)
                code = self._look()
                if code in MISCONFIGURED:
                    break
                if changes.seen():
                    log.info("the code has changed: the workers start anew")
                    for child in self._children:
                        child.refresh()
            self._end()
        return code if code in MISCONFIGURED else 0

    def stop(self) -> None:
        """Have everything end: gracefully the first time, at once the second time; safe in a signal handler."""
        if self._told_to_stop:
            for child in self._children:
                child.kill()
        self._told_to_stop = True

    def _look(self) -> int:
        for child in self._children:
            code = child.look()
            if code in MISCONFIGURED and self._can_never_start(child):
                return code
            if code is not None:
                level = logging.WARNING if code else logging.INFO
                log.log(level, "a worker ended with %s and is started again", code)
            if child.process is None and time.monotonic() >= child.next_start:
                child.start()
        return 0

    def _end(self) -> None:
        for child in self._children:
            child.send(signal.SIGTERM)
        for child in self._children:
            if child.process is not None:
                child.process.wait()

    def _can_never_start(self, child: Child) -> bool:
        """Tell whether what a command says of itself is true of all, and will not be mended while we wait."""
        return self._watched is None and child.failures == 1 and not any(one.is_healthy for one in self._children)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        before = {name: signal.signal(name, lambda *_: self.stop()) for name in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for name, handler in before.items():
                signal.signal(name, handler)


class _Changes:
    """Tells whether Python files below a folder have changed since the last look."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._known = self._look()

    def seen(self) -> bool:
        now = self._look()
        changed = now != self._known
        self._known = now
        return changed

    def _look(self) -> dict[str, float]:
        return {} if self._folder is None else dict(_python_files(str(self._folder)))


def _python_files(folder: str) -> Iterator[tuple[str, float]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _NOT_WATCHED:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _python_files(entry.path)
        elif entry.name.endswith(".py"):
            yield entry.path, entry.stat().st_mtime

"""The life of an embedded server: found or started, waited for, stopped by whoever owns it."""

from __future__ import annotations

import fcntl
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from durable.dev.errors import ServerUnavailable
from durable.dev.home import Home, home_in, unprivileged_account
from durable.dev.process import LOOK_EVERY, Child, Orphan, Process, free_port, is_running, start

READY_TIMEOUT = 60.0
ATTEMPTS = 5
PAUSE = 0.2


@dataclass(frozen=True)
class Server:
    """A server that answers; without a pid when a variable of the environment gave its URL."""

    url: str
    pid: int | None


class Kind(Protocol):
    """What differs between one server and another."""

    @property
    def name(self) -> str: ...

    @property
    def stop_signal(self) -> signal.Signals: ...

    @property
    def drops_root(self) -> bool: ...

    def prepare(self, home: Home) -> None:
        """Make what must be there before the first start."""

    def command(self, home: Home, port: int) -> Sequence[str]: ...

    def is_ready(self, port: int) -> bool: ...

    def url(self, port: int) -> str: ...


@contextmanager
def running(kind: Kind, folder: Path | None) -> Iterator[Server]:
    """Yield a server of that folder: the one that runs there, else a new one.

    Whoever holds the folder's lock owns the server and stops it; others use it for as long as it runs.
    """
    account = unprivileged_account() if kind.drops_root else None
    place = folder / kind.name.lower() if folder is not None else None
    with home_in(place, account) as home, (home.path / "owner.lock").open("a") as lock:
        deadline = time.monotonic() + READY_TIMEOUT
        while not took(lock):
            if (found := find(kind, home)) is not None:
                yield Server(kind.url(found.port), found.pid)
                return
            pause(deadline, f"another process owns {home.path}, but no {kind.name} answers there")
        with owned(kind, home) as server:
            yield server


@dataclass(frozen=True)
class Note:
    """Where the last server of a home was started."""

    pid: int
    port: int


@contextmanager
def owned(kind: Kind, home: Home) -> Iterator[Server]:
    found = find(kind, home)
    process: Process
    if found is not None:
        process, port = Orphan(found.pid, kind.stop_signal), found.port
    else:
        process, port = launch(kind, home)
    try:
        yield Server(kind.url(port), process.pid)
    finally:
        process.stop()
        home.note.unlink(missing_ok=True)


def took(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def find(kind: Kind, home: Home) -> Note | None:
    """Return where a server of this home answers, if one does."""
    try:
        pid, port = (int(word) for word in home.note.read_text().split())
    except (OSError, ValueError):
        return None
    return Note(pid, port) if is_running(pid) and kind.is_ready(port) else None


def launch(kind: Kind, home: Home) -> tuple[Child, int]:
    """Start a server and return it with its port once it answers.

    It is tried again because somebody may take the port first, and because the processes of a killed server
    may need a moment to let go of its data.
    """
    kind.prepare(home)
    for _ in range(ATTEMPTS):
        port = free_port()
        child = start(kind.command(home, port), home, stop_signal=kind.stop_signal, port=port)
        if became_ready(kind, child, port, home):
            return child, port
        time.sleep(PAUSE)
    raise ServerUnavailable(f"{kind.name} does not start in {home.path}. It says:\n{home.last_words()}")


def became_ready(kind: Kind, child: Child, port: int, home: Home) -> bool:
    """Wait until the server answers, and return False if it ended instead."""
    deadline = time.monotonic() + READY_TIMEOUT
    try:
        while child.wait() is None:
            if kind.is_ready(port):
                return True
            pause(deadline, f"{kind.name} does not answer in {home.path}. It says:\n{home.last_words()}")
    except BaseException:
        child.stop()
        raise
    child.stop()
    return False


def finish(command: Sequence[str], home: Home) -> None:
    """Run a command that prepares a home, to its end."""
    child = start(command, home, stop_signal=signal.SIGTERM, port=None)
    try:
        code = child.wait(READY_TIMEOUT)
    finally:
        child.stop()
    if code != 0:
        raise ServerUnavailable(f"{command[0]} failed with {code}. It says:\n{home.last_words()}")


def pause(deadline: float, complaint: str) -> None:
    if time.monotonic() > deadline:
        raise ServerUnavailable(complaint)
    time.sleep(LOOK_EVERY)

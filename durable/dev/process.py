"""Processes of embedded servers: our own children, and orphans of an owner that was killed."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Protocol

from durable.dev import guardian
from durable.dev.errors import ServerUnavailable
from durable.dev.home import Home

LOOPBACK = "127.0.0.1"
PATIENCE = 20.0
"""Seconds that a server may take to stop before it is killed."""
LOOK_EVERY = 0.02


class Process(Protocol):
    """A server's process, whoever started it."""

    @property
    def pid(self) -> int: ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class Child:
    """A process that a guardian runs for us."""

    pid: int
    guardian: subprocess.Popen[bytes]

    def wait(self, seconds: float = 0.0) -> int | None:
        """Return the exit code, which is told once, or None while the process runs."""
        output = output_of(self.guardian)
        readable, _, _ = select.select([output], [], [], seconds)
        return int(output.readline() or -signal.SIGKILL) if readable else None

    def stop(self) -> None:
        try:
            self.guardian.communicate(b"stop", timeout=2 * PATIENCE)
        except subprocess.TimeoutExpired:
            self.guardian.kill()
            send(self.pid, signal.SIGKILL)
            self.guardian.communicate()


@dataclass(frozen=True)
class Orphan:
    """A server that goes on after its owner was killed, until the next owner stops it."""

    pid: int
    stop_signal: signal.Signals

    def stop(self) -> None:
        deadline = time.monotonic() + PATIENCE
        send(self.pid, self.stop_signal)
        while is_running(self.pid):
            if time.monotonic() > deadline:
                send(self.pid, signal.SIGKILL)
                return
            time.sleep(LOOK_EVERY)


def start(command: Sequence[str], home: Home, *, stop_signal: signal.Signals, port: int | None) -> Child:
    """Start a command in a home, under a guardian.

    A server, which has a port, outlives us in a lasting home if we are killed, and a note there leads to it.
    """
    plan = guardian.Plan(
        command=list(command),
        folder=str(home.path),
        account=[home.account.uid, home.account.gid] if home.account else None,
        owner=os.getpid(),
        stop_signal=stop_signal,
        patience=PATIENCE,
        outlives_owner=port is not None and not home.ephemeral,
        folder_outlives_owner=not home.ephemeral,
        note=str(home.note),
        port=port,
    )
    runner = start_guardian(plan, home.log)
    pid = output_of(runner).readline()
    if not pid:
        runner.communicate()
        raise ServerUnavailable(f"{command[0]} cannot be run. It says:\n{home.last_words()}")
    return Child(int(pid), runner)


def start_guardian(plan: guardian.Plan, log: Path) -> subprocess.Popen[bytes]:
    # Isolated and without site, Python starts in 10 ms and no path or variable of ours can break it.
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", guardian.__file__, json.dumps(asdict(plan))],
            bufsize=0,  # A line in a buffer would be hidden from select.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            env={name: value for name, value in os.environ.items() if not name.startswith("PG")},
            start_new_session=True,
        )


def output_of(runner: subprocess.Popen[bytes]) -> IO[bytes]:
    assert runner.stdout is not None
    return runner.stdout


def is_running(pid: int) -> bool:
    """Return whether the process runs; a zombie does not, though the kernel still knows its pid."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not is_zombie(pid)


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False


def send(pid: int, name: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, name)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port

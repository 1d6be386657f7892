"""Stand between a server and its owner, so that the server ends with an owner that is killed.

It runs as a script (`process.py` starts it) and imports only the standard library, to be up in a few
milliseconds. The kernel's parent-death signal would not do: it comes when the *thread* that started the
server ends, only Linux has it, and it leaves the folder behind.

It says the server's pid, later its exit code, on standard output. One byte on standard input stops the
server; the end of standard input means that the owner has died.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass

LOOK_EVERY = 0.2


@dataclass(frozen=True)
class Plan:
    """What to run, and what becomes of it when its owner dies."""

    command: list[str]
    folder: str
    account: list[int] | None
    owner: int
    stop_signal: int
    patience: float
    outlives_owner: bool
    folder_outlives_owner: bool
    note: str
    port: int | None


def main(plan: Plan) -> None:
    server = start(plan)
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    say(server.pid)
    report_end(server)
    owner_died = watch(plan.owner)
    if owner_died and plan.outlives_owner:
        return
    stop(server, plan)
    if owner_died and not plan.folder_outlives_owner:
        shutil.rmtree(plan.folder, ignore_errors=True)


def start(plan: Plan) -> subprocess.Popen[bytes]:
    user, group = plan.account or (None, None)
    server = subprocess.Popen(
        plan.command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        cwd=plan.folder,
        user=user,
        group=group,
        extra_groups=[] if plan.account else None,
        start_new_session=True,
    )
    if plan.port is not None:
        with open(plan.note, "w") as note:
            note.write(f"{server.pid} {plan.port}\n")
    return server


def report_end(server: subprocess.Popen[bytes]) -> None:
    """Say the exit code as soon as there is one."""

    def look(*_: object) -> None:
        if server.returncode is None and (code := server.poll()) is not None:
            say(code)

    signal.signal(signal.SIGCHLD, look)
    look()


def watch(owner: int) -> bool:
    """Wait for the owner's word or death, and return whether it was death.

    Children that the owner forks hold its end of the pipe open, hence the look at our parent as well.
    """
    while os.getppid() == owner:
        readable, _, _ = select.select([sys.stdin], [], [], LOOK_EVERY)
        if readable:
            return os.read(sys.stdin.fileno(), 1) == b""
    return True


def stop(server: subprocess.Popen[bytes], plan: Plan) -> None:
    with contextlib.suppress(ProcessLookupError):
        server.send_signal(plan.stop_signal)
    try:
        server.wait(plan.patience)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def say(number: int) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), f"{number}\n".encode())


if __name__ == "__main__":
    main(Plan(**json.loads(sys.argv[1])))

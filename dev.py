#!/usr/bin/env python3
"""Run a command in the project's own environment, which is made first where it is missing or out of date."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

USAGE = """\
usage: python3 dev.py COMMAND [ARGUMENTS]

  test               every check: ruff, pytest, mypy, pyright, lint-imports
  test ARGUMENTS     only pytest, with these arguments: python3 dev.py test tests/unit -k claim
  demo               the example application, from nothing to a finished workflow
  lock [--upgrade]   make requirements.lock again from pyproject.toml
  COMMAND ...        anything else, inside the environment: python3 dev.py durable --help

The environment is .venv. It is made from requirements.lock on the first run, and again whenever that file,
pyproject.toml or Python changes. Needed: Python 3.11 or newer, and either uv or pip.
"""

OLDEST_PYTHON = (3, 11)
ROOT = Path(__file__).resolve().parent
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
STAMP = ENVIRONMENT / ".complete"
TOOLS = ROOT / ".dev"
LOCK = "requirements.lock"
PIP_INSTALL = ("install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore")

CHECKS = (
    ("ruff", "check"),
    ("ruff", "format", "--check"),
    ("pytest",),
    ("mypy",),
    ("pyright",),
    ("lint-imports",),
)
SHORTCUTS = {"test": ["pytest"], "demo": ["python", "-m", "actors.demo"]}


class SetupFailed(Exception):
    """The environment could not be made; the message says what to do."""


def main(arguments: list[str]) -> int:
    if sys.version_info < OLDEST_PYTHON:
        return fail(f"this is Python {python_version()}, but {required_python()} or newer is needed")
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    try:
        return dispatch(arguments[0], arguments[1:])
    except SetupFailed as error:
        return fail(str(error))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def dispatch(command: str, arguments: list[str]) -> int:
    if command == "lock":
        return make_lock(arguments)
    ensure_environment()
    if command == "test" and not arguments:
        return run_checks()
    if command in SHORTCUTS:
        os.chdir(ROOT)
    return become([*SHORTCUTS.get(command, [command]), *arguments])


def run_checks() -> int:
    """Run every check, also after one has failed, so that one run shows everything."""
    results = []
    for check in CHECKS:
        say(" ".join(check))
        started = time.monotonic()
        passed = call(*check, env=inside()) == 0
        results.append((" ".join(check), passed, time.monotonic() - started))
    print()
    for name, passed, seconds in results:
        print(f"{'passed' if passed else 'FAILED'} {seconds:7.1f} s  {name}")
    return 0 if all(passed for _, passed, _ in results) else 1


def make_lock(arguments: list[str]) -> int:
    uv = find_uv()
    if uv is None:
        raise SetupFailed("the lock is made by uv, which is neither on PATH nor could be installed by pip")
    options = "--extra embedded --group dev --universal --generate-hashes"
    options += f" --no-emit-index-url --no-annotate --no-header -q -o {LOCK}"
    # Without it, what only older Pythons need is left out when a newer one makes the lock.
    options += f" --python-version {required_python()}"
    return call(uv, "pip", "compile", "pyproject.toml", *options.split(), *arguments)


def become(command: list[str]) -> NoReturn:
    """Replace this process by the command, so that signals and the exit code need no passing on."""
    environment = inside()
    program = shutil.which(command[0], path=environment["PATH"])
    if program is None:
        sys.exit(fail(f"there is no command {command[0]!r} in the environment", code=127))
    sys.stdout.flush()
    os.execve(program, command, environment)


def inside() -> dict[str, str]:
    """Return the variables that an activated environment would have."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONHOME"}
    path = os.pathsep.join([str(ENVIRONMENT / "bin"), variables.get("PATH", os.defpath)])
    return {**variables, "PATH": path, "VIRTUAL_ENV": str(ENVIRONMENT)}


def ensure_environment() -> None:
    if is_current():
        return
    with only_one_process():
        if not is_current():
            make_environment()


def is_current() -> bool:
    return read_stamp() == wanted_stamp() and os.access(PYTHON, os.X_OK)


def make_environment() -> None:
    started = time.monotonic()
    say(f"making {ENVIRONMENT} with Python {python_version()}")
    home = read_stamp().partition("\n")[0]
    STAMP.unlink(missing_ok=True)
    # Without a stamp it was left half made; with another home its scripts point elsewhere.
    if home != environment_home() or not os.access(PYTHON, os.X_OK):
        make_empty_environment()
    install()
    STAMP.write_text(wanted_stamp())
    say(f"made in {time.monotonic() - started:.1f} s")


def make_empty_environment() -> None:
    import venv

    if ENVIRONMENT.is_symlink() or ENVIRONMENT.is_file():
        ENVIRONMENT.unlink()
    venv.create(ENVIRONMENT, clear=True, symlinks=True, with_pip=False)


def install() -> None:
    uv = find_uv()
    if uv is not None and install_with_uv(uv):
        return
    say("uv is not to be had or failed; pip takes longer")
    if not install_with_pip(find_pip()):
        raise SetupFailed(f"{LOCK} could not be installed; the reason is printed above")


def install_with_uv(uv: str) -> bool:
    target = ("--quiet", "--python", str(PYTHON))
    return (
        # Compiled once here, as pip does: each of many processes would do it again where nothing may write bytecode.
        call(uv, "pip", "sync", *target, "--compile-bytecode", "--require-hashes", LOCK) == 0
        and call(uv, "pip", "install", *target, "--no-deps", "--editable", ".") == 0
    )


def install_with_pip(pip: list[str]) -> bool:
    command = (*pip, "--python", str(PYTHON), *PIP_INSTALL)
    return call(*command, "--require-hashes", "-r", LOCK) == 0 and call(*command, "--no-deps", "--editable", ".") == 0


def find_uv() -> str | None:
    """Return a uv that runs: the one on PATH, or one of our own, which pip may put into a private folder
    even where the system's Python is managed by its distribution.
    """
    # Linters skip folders of this name, also where there is no git to tell them what is ignored.
    folder = TOOLS / "site-packages"
    own = str(folder / "bin" / "uv")
    for uv in (shutil.which("uv"), own):
        if uv is not None and runs(uv, "--version"):
            return uv
    shutil.rmtree(folder, ignore_errors=True)
    say("uv is not on PATH; installing it with pip into .dev")
    call(*find_pip(), *PIP_INSTALL, "--target", str(folder), "uv")
    return own if runs(own, "--version") else None


def find_pip() -> list[str]:
    """Return a pip that runs: this Python's, or that of an environment made only for it."""
    folder = TOOLS / "pip"
    own = str(folder / "bin" / "python")
    for python in (sys.executable, own):
        if runs(python, "-m", "pip", "--version"):
            return [python, "-m", "pip"]
    if call(sys.executable, "-m", "venv", "--clear", str(folder)) == 0:
        return [own, "-m", "pip"]
    raise SetupFailed("this Python has neither pip nor ensurepip: install uv, or, on Debian and Ubuntu, python3-venv")


@contextlib.contextmanager
def only_one_process() -> Iterator[None]:
    """Hold the lock under which the environment is made; the kernel frees it however this process ends."""
    TOOLS.mkdir(exist_ok=True)
    with (TOOLS / "environment.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another dev.py that is making the environment")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def read_stamp() -> str:
    try:
        return STAMP.read_text()
    except OSError:
        return ""


def wanted_stamp() -> str:
    """Return what the environment depends on: its home on the first line, its content on the second."""
    content = hashlib.sha256()
    for name in (LOCK, "pyproject.toml"):
        content.update((ROOT / name).read_bytes())
    return f"{environment_home()}\n{content.hexdigest()}\n"


def environment_home() -> str:
    return f"{ENVIRONMENT} {python_version()}"


def python_version() -> str:
    return ".".join(str(part) for part in sys.version_info[:3])


def required_python() -> str:
    return ".".join(str(part) for part in OLDEST_PYTHON)


def call(*command: str, env: dict[str, str] | None = None) -> int:
    """Run a command in the project's root and return its exit code; SIGTERM ends first it, then us."""
    child: subprocess.Popen[bytes] | None = None
    told = False

    def pass_on(*_: object) -> None:
        nonlocal told
        told = True
        if child is not None:
            child.terminate()

    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        child = subprocess.Popen(command, cwd=ROOT, env=env)
        if told:
            child.terminate()
        code = wait_for(child)
    finally:
        signal.signal(signal.SIGTERM, before)
    if told:
        sys.exit(128 + signal.SIGTERM)
    return code


def wait_for(child: subprocess.Popen[bytes]) -> int:
    try:
        return child.wait()
    except KeyboardInterrupt:
        # The terminal has told the child too; its own clean-up comes first.
        child.wait()
        raise


def runs(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def say(message: str) -> None:
    print(f"dev.py: {message}", flush=True)


def fail(message: str, *, code: int = 1) -> int:
    print(f"dev.py: {message}", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

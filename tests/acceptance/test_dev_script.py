"""`dev.py` makes the environment once, again when it must, and then keeps out of the way."""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "dev.py"
CHECKS = ["ruff check", "ruff format --check", "pytest", "mypy", "pyright", "lint-imports"]

UNTIL_TOLD = "trap 'echo told; exit 3' TERM; echo up; while read _; do :; done"


class Project:
    """A project of nothing but `dev.py`, with programs that only write down how they were called."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = root / ".venv"
        self.calls = root / "calls"
        self.tools = root / "tools"
        self.started: list[subprocess.Popen[str]] = []
        shutil.copy(SCRIPT, root)
        (root / "requirements.lock").write_text("one==1\n")
        (root / "pyproject.toml").write_text("[project]\n")
        self.tools.mkdir()

    def add_uv(self, *, then: str = "exit 0") -> None:
        self.add_program(self.tools / "uv", then=f'case "$1" in --version) exit 0;; esac; {then}')

    def add_program(self, path: Path, *, then: str = "exit 0") -> None:
        path.write_text(f'#!/bin/sh\necho "{path.name} $*" >> {self.calls}\n{then}\n')
        path.chmod(0o755)

    def make_environment(self) -> None:
        (self.environment / "bin").mkdir(parents=True)
        (self.environment / "bin" / "python").symlink_to(sys.executable)
        (self.environment / ".complete").write_text(self.script().wanted_stamp())

    def script(self) -> ModuleType:
        spec = importlib.util.spec_from_file_location("dev_script", self.root / "dev.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        path = os.pathsep.join([str(self.tools), os.defpath])
        process = subprocess.Popen(
            [sys.executable, str(self.root / "dev.py"), *arguments],
            env={**os.environ, "PATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def end(self) -> None:
        """Kill what a failed test has left running, together with its children."""
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            with process:
                pass

    def run(self, *arguments: str) -> tuple[int, str]:
        process = self.start(*arguments)
        output, _ = process.communicate()
        return process.returncode, output

    def called(self, program: str) -> list[str]:
        calls = self.calls.read_text().splitlines() if self.calls.exists() else []
        return [call for call in calls if call.startswith(program) and not call.endswith("--version")]


@pytest.fixture
def project(tmp_path):
    project = Project(tmp_path)
    yield project
    project.end()


@pytest.fixture
def ready(project):
    project.make_environment()
    return project


def test_a_command_runs_inside_the_environment(ready):
    code, output = ready.run("sh", "-c", "echo $VIRTUAL_ENV; echo $PATH")
    folder, path = output.splitlines()
    assert (code, folder) == (0, str(ready.environment))
    assert path.startswith(f"{ready.environment}/bin:")


def test_the_exit_code_of_the_command_is_passed_through(ready):
    assert ready.run("sh", "-c", "exit 7") == (7, "")


def test_a_signal_reaches_the_command(ready):
    process = ready.start("sh", "-c", UNTIL_TOLD)
    assert first_line(process) == "up\n"
    process.send_signal(signal.SIGTERM)
    assert (other_lines(process), process.wait()) == ("told\n", 3)


def test_an_unknown_command_is_named(ready):
    code, output = ready.run("no-such-command")
    assert code == 127
    assert "'no-such-command'" in output


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_usage_is_shown_without_making_anything(project, arguments):
    code, output = project.run(*arguments)
    assert code == 0
    assert output.startswith("usage: python3 dev.py")
    assert not project.environment.exists()


def test_a_python_that_is_too_old_is_told_so(project, monkeypatch, capsys):
    script = project.script()
    monkeypatch.setattr(script, "OLDEST_PYTHON", (99, 1))
    assert script.main(["test"]) == 1
    assert re.search(r"this is Python [\d.]+, but 99\.1 or newer is needed", capsys.readouterr().err)


def test_test_runs_every_check_and_fails_if_any_failed(ready):
    for name in {check.split()[0] for check in CHECKS}:
        ready.add_program(ready.environment / "bin" / name, then="exit 1" if name == "mypy" else "exit 0")
    code, output = ready.run("test")
    assert [call.strip() for call in ready.called("")] == CHECKS
    assert code == 1
    assert re.findall(r"^(\w+) +[\d.]+ s  (.+)$", output, re.MULTILINE) == [
        ("FAILED" if check == "mypy" else "passed", check) for check in CHECKS
    ]


def test_a_signal_ends_the_check_that_runs_and_starts_no_other(ready):
    ready.add_program(ready.environment / "bin" / "ruff", then=UNTIL_TOLD)
    process = ready.start("test")
    assert first_line(process) == "dev.py: ruff check\n"
    assert first_line(process) == "up\n"
    process.send_signal(signal.SIGTERM)
    assert (other_lines(process), process.wait()) == ("told\n", 128 + signal.SIGTERM)


def test_test_with_arguments_runs_only_pytest_with_them(ready):
    ready.add_program(ready.environment / "bin" / "pytest", then="exit 5")
    assert ready.run("test", "tests/unit", "-k", "claim") == (5, "")
    assert ready.called("") == ["pytest tests/unit -k claim"]


@pytest.mark.parametrize("file", ["requirements.lock", "pyproject.toml"])
def test_the_environment_is_brought_up_to_date_when_a_file_changes(ready, file):
    ready.add_uv()
    kept = ready.environment / "kept"
    kept.touch()
    with (ready.root / file).open("a") as changed:
        changed.write("# changed\n")
    assert ready.run("true")[0] == 0
    assert [call.split()[:3] for call in ready.called("uv")] == [
        ["uv", "pip", "sync"],
        ["uv", "pip", "install"],
    ]
    assert kept.exists()
    assert ready.run("true") == (0, "")


def test_only_hashed_packages_of_the_lock_are_installed(project):
    project.add_uv()
    assert project.run("true")[0] == 0
    sync, install = project.called("uv")
    assert sync.endswith("--require-hashes requirements.lock")
    assert install.endswith("--no-deps --editable .")


def test_an_environment_that_was_left_half_made_is_made_anew(project):
    (project.environment / "bin").mkdir(parents=True)
    rest = project.environment / "rest"
    rest.touch()
    project.add_uv()
    assert project.run("true")[0] == 0
    assert not rest.exists()


def test_an_environment_whose_python_is_gone_is_made_anew(ready):
    python = ready.environment / "bin" / "python"
    python.unlink()
    python.symlink_to("/no/such/python")
    ready.add_uv()
    assert ready.run("true")[0] == 0
    assert os.access(python, os.X_OK)


def test_an_environment_of_another_folder_or_python_is_made_anew(ready):
    stamp = ready.environment / ".complete"
    rest = ready.environment / "rest"
    ready.add_uv()
    for old, new in ((str(ready.root), "/elsewhere"), (ready.script().python_version(), "3.11.0")):
        rest.touch()
        stamp.write_text(stamp.read_text().replace(old, new))
        assert ready.run("true")[0] == 0
        assert not rest.exists()


def test_two_runs_at_once_make_the_environment_once(project):
    gate = project.root / "gate"
    os.mkfifo(gate)
    project.add_uv(then=f'case "$2" in sync) read _ < {gate};; esac')
    runs = [project.start("true"), project.start("true")]
    waiting = [run for run in runs if "waiting" in first_line(run)]
    gate.write_text("go\n")
    for run in runs:
        run.communicate()
    assert len(waiting) == 1
    assert [run.returncode for run in runs] == [0, 0]
    assert len(project.called("uv")) == 2


def first_line(run: subprocess.Popen[str]) -> str:
    assert run.stdout is not None
    return run.stdout.readline()


def other_lines(run: subprocess.Popen[str]) -> str:
    """Read to the end, with its input still open: the end of its input would end it too."""
    assert run.stdout is not None
    return run.stdout.read()


def test_lock_is_made_by_uv_for_every_platform_and_python_with_hashes(project):
    project.add_uv()
    assert project.run("lock", "--upgrade")[0] == 0
    assert project.called("uv") == [
        "uv pip compile pyproject.toml --extra embedded --group dev --universal --generate-hashes "
        "--no-emit-index-url --no-annotate --no-header -q -o requirements.lock --python-version 3.11 --upgrade"
    ]
    assert not project.environment.exists()

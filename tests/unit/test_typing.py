"""What type checkers say about code that uses the library: nothing where it is right, something where it is not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TYPING = ROOT / "tests/typing"
MISTAKES = TYPING / "mistakes.py"

pytestmark = pytest.mark.slow


def run(*command):
    """Run a type checker in the project and return what it says."""
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout


def found_by_mypy(_):
    files = [str(path) for path in TYPING.glob("*.py")]
    said = run("mypy", "--strict", "--show-absolute-path", "--no-error-summary", *files)
    found = re.findall(r"^(.+?):(\d+): error: (.+)$", said, flags=re.MULTILINE)
    return [(path, int(line), message) for path, line, message in found]


def found_by_pyright(directory):
    """The configuration is one of its own: the project's leaves the mistakes out."""
    settings = {
        "include": [os.path.relpath(TYPING, directory)],
        "extraPaths": [str(ROOT)],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
    }
    (directory / "pyrightconfig.json").write_text(json.dumps(settings))
    said = json.loads(run("pyright", "--project", str(directory), "--pythonpath", sys.executable, "--outputjson"))
    return [
        (one["file"], one["range"]["start"]["line"] + 1, one["message"])
        for one in said["generalDiagnostics"]
        if one["severity"] == "error"
    ]


@pytest.fixture(scope="module", params=[found_by_mypy, found_by_pyright], ids=["mypy", "pyright"])
def found(request, tmp_path_factory):
    """Path, line and message of every error."""
    return request.param(tmp_path_factory.mktemp("typing"))


def test_right_code_is_accepted_without_an_ignore(found):
    assert [error for error in found if error[0] != str(MISTAKES)] == []
    assert not [path for path in TYPING.glob("*.py") if re.search(r"#\s*(type|pyright):", path.read_text())]


def test_every_mistake_is_found_and_nothing_else(found):
    lines = MISTAKES.read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    blamed = {line: message for path, line, message in found if path == str(MISTAKES)}

    assert len(wrong) > 50
    assert wrong - blamed.keys() == set()
    assert {line: message for line, message in blamed.items() if line not in wrong} == {}

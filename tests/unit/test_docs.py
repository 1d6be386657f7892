"""The documentation: what it draws is up to date, what it shows runs, what it links to is there."""

from __future__ import annotations

import importlib.util
import os
import pkgutil
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from sqlalchemy import inspect, text

import durable as library
from durable import ExecutionState, Outcome, WorkflowState, registry
from durable import runtime as runtimes
from durable.verbs import ALLOWED
from tests.invariants import violations

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]

PYTHON = re.compile(r"^(?:```python|<!-- python)\n(?P<source>.*?)^(?:```|-->)$", re.DOTALL | re.MULTILINE)
PRINTED = re.compile(r"^```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# (?P<name>\w+\.py)\n")
LINK = re.compile(r"\[[^\]]+\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
VARIABLE = re.compile(r"\bDURABLE_[A-Z_]*[A-Z]\b")
LOGGED = re.compile(r"^\| [^|]+ \| `(?P<message>[^`]+)` \|", re.MULTILINE)
TERM = re.compile(r"^- \*\*(?P<term>[^*]+)\*\*: ", re.MULTILINE)

WORDS = """
    actor, anonymous step, attempt, audit, body, broker, claim, clock, condition, courier, crash, data, definition,
    execution, flow control, gravestone, guard, handle, handler, heartbeat, hero, history, hook, idempotency key,
    input, interrupt, interruption, lease, letter, live, loop, mark, message, move, ongoing, outbox, outcome, plan,
    policy, priority, pulse, queue, reaper, reason, reattempt, relay, report, result, resume input, retry, room,
    runtime, scratch database, settings, settle, signal, slot, speedrun, state, step, stop request, store, supervisor,
    terminal, terminal action, timeout, travel, unique key, verb, verdict, version, visit, wait, worker, workflow
"""


@dataclass(frozen=True)
class Block:
    """A piece of Python in a page."""

    source: str
    line: int

    @property
    def file(self) -> str | None:
        """The file that the reader is told to put it into."""
        named = FILE.match(self.source)
        return named and named["name"]


def blocks_of(page: Path) -> list[Block]:
    written = page.read_text()
    return [
        Block(found["source"], written.count("\n", 0, found.start("source")) + 1) for found in PYTHON.finditer(written)
    ]


def files_of(page: Path) -> dict[str, str]:
    """Return the files that a reader has made at the end of a page."""
    files: dict[str, str] = defaultdict(str)
    for block in blocks_of(page):
        if block.file is not None:
            files[block.file] += block.source
    return dict(files)


def label(page: Path) -> str:
    return str(page.relative_to(ROOT))


def pages(*, that=lambda page: True):
    return pytest.mark.parametrize("page", [page for page in PAGES if that(page)], ids=label)


# --- what is shown


@pytest.fixture
def module(durable, durable_database, monkeypatch) -> Iterator[ModuleType]:
    """A module in which a page is run; what the page leaves behind is cleared away."""
    tables, classes = set(inspect(durable.engine).get_table_names()), set(registry.loaded())
    monkeypatch.setenv("DURABLE_DATABASE_URL", durable_database)
    yield ModuleType("a_page")
    used = runtimes.current()
    if used.engine is not durable.engine:
        used.engine.dispose()
    assert not violations(durable.engine)
    for name in set(registry.loaded()) - classes:
        registry.forget(name)
    with durable.engine.begin() as conn:
        conn.execute(text("SET lock_timeout = '5s'"))
        for table in set(inspect(conn).get_table_names()) - tables:
            conn.execute(text(f"DROP TABLE {table} CASCADE"))


@pages(that=blocks_of)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(page, module, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in blocks_of(page):
        if block.file is not None:
            monkeypatch.setitem(sys.modules, Path(block.file).stem, module)
        lines_as_in_the_page = "\n" * (block.line - 1) + block.source
        exec(compile(lines_as_in_the_page, page, "exec", dont_inherit=True), vars(module))

    printed = capsys.readouterr().out
    for promised in PRINTED.findall(page.read_text()):
        assert promised in printed


@pages(that=files_of)
def test_the_files_of_a_page_run_in_an_empty_folder(page, tmp_path, durable_server):
    files = files_of(page)
    for name, source in files.items():
        (tmp_path / name).write_text(source)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nfilterwarnings = error\ndurable_database_url = {durable_server}\n")

    if "run.py" in files:
        assert run(tmp_path, "run.py") == "".join(PRINTED.findall(page.read_text()))
    assert "passed" in run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider")


def run(folder: Path, *arguments: str) -> str:
    """Run Python as a reader would, without any setting of ours, and return what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DURABLE_", "PYTEST_"))}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# --- what is drawn


@pages()
def test_what_a_page_draws_from_the_code_is_up_to_date(page):
    spec = importlib.util.spec_from_file_location("diagrams", DOCS / "diagrams.py")
    diagrams = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(diagrams)

    assert diagrams.redraw(page.read_text()) == page.read_text(), "run: python3 dev.py python docs/diagrams.py"


def test_every_drawing_is_in_some_page():
    drawn = re.findall(r"^<!-- drawn: ([a-z ]+) -->$", "\n".join(page.read_text() for page in PAGES), re.MULTILINE)

    assert set(drawn) == {"workflow states", "execution states", "verbs", "settings"}


# --- what is linked and named


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=label)
def test_every_relative_link_leads_somewhere(page):
    for link in LINK.finditer(FENCED.sub("", page.read_text())):
        path, _, anchor = link["target"].partition("#")
        if "://" in path:
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link[0]
        assert ROOT in target.parents, link[0]
        assert not anchor or anchor in anchors_of(target), link[0]


def anchors_of(page: Path) -> set[str]:
    """Return what the headings of a page can be linked by."""
    headings = HEADING.findall(FENCED.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_can_be_reached_from_the_first():
    reached, found = set(), [ROOT / "README.md"]
    while found:
        page = found.pop()
        reached.add(page)
        targets = (page.parent / link["target"].partition("#")[0] for link in LINK.finditer(page.read_text()))
        found += {target.resolve() for target in targets if target.suffix == ".md"} - reached

    assert set(PAGES) <= reached


@pytest.mark.parametrize("name", library.__all__)
def test_every_public_name_is_mentioned(name):
    code = re.compile(rf"`[^`\n]*\b{name}\b[^`\n]*`")

    assert any(code.search(page.read_text()) for page in DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=label)
def test_every_variable_of_the_environment_that_is_named_exists(page):
    settings = {f"DURABLE_{name.upper()}" for name in library.Settings.model_fields}

    assert set(VARIABLE.findall(page.read_text())) <= settings | {"DURABLE_PG_BIN"}


def test_the_log_messages_to_expect_are_those_of_the_code():
    logged = (DOCS / "operations.md").read_text().partition("## Logs to expect")[2].partition("\n## ")[0]
    code = "".join(file.read_text() for file in Path(library.__file__).parent.rglob("*.py"))
    messages = [found["message"] for found in LOGGED.finditer(logged)]

    assert messages
    assert [part for message in messages for part in message.split("…") if part not in code] == []


@pytest.mark.parametrize("module", [module.name for module in pkgutil.iter_modules(library.__path__)])
def test_every_module_stands_in_a_room(module):
    assert re.search(rf"`{module}/?`", (DOCS / "architecture.md").read_text())


# --- the words of the house


def terms() -> list[str]:
    return [found["term"] for found in TERM.finditer((DOCS / "glossary.md").read_text())]


@pytest.mark.parametrize("word", [word.strip() for word in WORDS.split(",")])
def test_the_glossary_has_the_words_of_the_house(word):
    assert word in terms()


@pytest.mark.parametrize("word", sorted({*WorkflowState, *ExecutionState, *Outcome, *ALLOWED}))
def test_the_glossary_has_every_state_outcome_and_verb(word):
    assert word in terms()


def test_the_glossary_is_in_order_and_explains_each_word_once():
    assert terms() == sorted(set(terms()))


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=label)
def test_canceled_has_one_l(page):
    assert "cancelled" not in page.read_text().lower()

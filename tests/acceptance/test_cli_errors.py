"""What goes wrong is told in one sentence, with an exit code and never a traceback."""

from __future__ import annotations

from uuid import uuid4

import pytest
import redis
from sqlalchemy import text
from sqlalchemy.exc import ProgrammingError

from durable import Workflow, runtime, scratch, step
from durable.cli.errors import told_of
from durable.runtime import Runtime
from durable.settings import Settings
from tests.acceptance.test_cli import durable, printed_json, run

ID = str(uuid4())
COMMANDS = [
    ("list",),
    ("show", ID),
    ("start", "Errand"),
    ("pause", ID),
    ("resume", ID),
    ("skip", ID),
    ("cancel", ID),
    ("retry", ID),
    ("stats",),
    ("explain", ID),
    ("migrate", "--check"),
]


class Errand(Workflow[None], unique="none"):
    @step
    def go(self):
        pass


@pytest.fixture
def elsewhere(durable_runtime):
    """Use another database for a while."""
    made = []

    def use(url):
        made.append(runtime.use(Runtime(Settings(database_url=url))))

    yield use
    for one in made:
        one.engine.dispose()
    runtime.use(durable_runtime)


@pytest.fixture
def folder(tmp_path):
    """Write a module of an application into a folder of its own."""

    def write(source):
        (tmp_path / "errands.py").write_text(source)
        return str(tmp_path)

    return write


ERRANDS = (
    "from durable import Workflow, step\nclass Walk(Workflow, unique='none'):\n    @step\n    def go(self): pass\n"
)


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: arguments[0])
def test_a_database_that_cannot_be_reached_is_told_in_a_sentence(elsewhere, arguments):
    elsewhere("postgresql://nobody@127.0.0.1:1/none")

    refused = run(*arguments)

    assert (refused.exit_code, refused.stdout) == (1, "")
    (sentence,) = refused.stderr.splitlines()
    assert sentence.startswith("cannot reach the database: ")
    assert sentence.endswith("is it up, and is DURABLE_DATABASE_URL right?")


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: arguments[0])
def test_a_database_that_was_never_migrated_is_told_in_a_sentence(durable_server, elsewhere, arguments):
    with scratch.database(durable_server, f"durable_cli_{uuid4().hex[:8]}") as url:
        elsewhere(url.render_as_string(hide_password=False))

        refused = run(*arguments)

    assert (refused.exit_code, refused.stdout) == (1, "")
    (sentence,) = refused.stderr.splitlines()
    assert "run `durable migrate`" in sentence


def test_a_missing_table_of_the_application_is_not_taken_for_ours(runtime):
    with pytest.raises(ProgrammingError) as missing, runtime.engine.connect() as conn:
        conn.execute(text("SELECT * FROM heroes"))

    assert told_of(missing.value).sentence == 'the database refused: relation "heroes" does not exist'


def test_a_broker_that_fails_is_told_in_a_sentence():
    assert "is DURABLE_REDIS_URL right?" in told_of(redis.ConnectionError("refused")).sentence


def test_a_bug_is_not_explained_away():
    assert told_of(ZeroDivisionError()) is None


# --- as processes


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("show", ID), 1), (("show",), 2), (("sing",), 2)],
)
def test_the_process_ends_with_the_code_and_without_a_traceback(arguments, code):
    ended = durable(*arguments, DURABLE_DATABASE_URL="postgresql://nobody@127.0.0.1:1/none")

    assert (ended.returncode, ended.stdout) == (code, "")
    assert "Traceback" not in ended.stderr


def test_a_workflow_that_is_not_there_ends_the_process_with_3(runtime):
    missing = durable("show", ID, DURABLE_DATABASE_URL=runtime.settings.database_url)

    assert (missing.returncode, missing.stdout) == (3, "")
    assert missing.stderr == f"there is no workflow with the id {ID}: `durable list` shows which there are\n"


def test_a_setting_that_makes_no_sense_is_named(runtime):
    refused = durable("list", DURABLE_LOST_WORKER_AFTER="soon", DURABLE_DATABASE_URL=runtime.settings.database_url)

    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("the setting DURABLE_LOST_WORKER_AFTER is wrong: ")


def test_start_without_workflows_says_how_to_name_them(runtime, tmp_path):
    refused = durable("start", "Walk", cwd=tmp_path, DURABLE_DATABASE_URL=runtime.settings.database_url)

    assert (refused.returncode, refused.stdout) == (1, "")
    assert "DURABLE_MODULES=myapp.workflows" in refused.stderr


def test_classes_are_found_in_the_modules_that_are_named(runtime, folder):
    settings = {"DURABLE_DATABASE_URL": runtime.settings.database_url, "DURABLE_MODULES": "errands"}

    started = durable("start", "Walk", cwd=folder(ERRANDS), **settings)

    assert started.returncode == 0, started.stderr
    assert Workflow.get(started.stdout.strip()).name == "errands.Walk"


def test_what_a_module_prints_does_not_get_into_the_document(runtime, folder):
    settings = {"DURABLE_DATABASE_URL": runtime.settings.database_url, "DURABLE_MODULES": "errands"}

    done = durable("list", "--json", cwd=folder(f"print('hello')\n{ERRANDS}"), **settings)

    assert printed_json(done) == {"workflows": [], "after": None}
    assert "hello" in done.stderr


def test_a_mistake_of_syntax_is_located_in_the_module_that_has_it(runtime, folder):
    settings = {"DURABLE_DATABASE_URL": runtime.settings.database_url, "DURABLE_MODULES": "errands"}
    broken = folder("class Walk:\n    pass\ndef go(:\n    pass\n")

    refused = durable("start", "Walk", cwd=broken, **settings)

    assert (refused.returncode, "Traceback" in refused.stderr) == (1, False)
    assert refused.stderr == (
        f"the workflows cannot be imported: SyntaxError: invalid syntax ({broken}/errands.py, line 3)\n"
    )


def test_a_module_that_cannot_be_imported_stands_in_nobodys_way_but_starts(runtime, folder):
    settings = {"DURABLE_DATABASE_URL": runtime.settings.database_url, "DURABLE_MODULES": "errands"}
    broken = folder("1 / 0\n")
    workflow = Errand.create(None)

    canceled = durable("cancel", str(workflow.id), cwd=broken, **settings)
    refused = durable("start", "Walk", cwd=broken, **settings)

    assert (canceled.returncode, workflow.refresh().state) == (0, "canceled")
    assert canceled.stderr.count("\n") == 1
    assert "the workflows cannot be imported: ZeroDivisionError: division by zero" in canceled.stderr
    assert (refused.returncode, "Traceback" in refused.stderr) == (1, False)
    assert "the workflows cannot be imported: ZeroDivisionError: division by zero" in refused.stderr

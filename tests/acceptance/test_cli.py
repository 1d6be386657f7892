"""The command `durable`, run as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from durable import Workflow, migrate, scratch, step
from durable.cli import app
from durable.testing import travel

ROOT = Path(__file__).parents[2]


def durable(*arguments, cwd=ROOT, **environment):
    """Run the command and return what came of it."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("DURABLE_")}
    return subprocess.run(
        [sys.executable, "-m", "durable.cli", *arguments],
        capture_output=True,
        text=True,
        env=own | environment,
        timeout=60,
        cwd=cwd,
    )


def run(*arguments, columns=100):
    """Run the command in this process, on its runtime and with its classes: for what needs no process of its own."""
    done = CliRunner().invoke(app, [str(one) for one in arguments], env={"COLUMNS": str(columns)})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def printed_json(done):
    """Return the one JSON document that a command has printed."""
    return json.loads(done.stdout)


@pytest.fixture
def blank(durable_server):
    """The URL of an empty database."""
    with scratch.database(durable_server, "durable_cli") as url:
        yield url.set(drivername="postgresql").render_as_string(hide_password=False)


def test_migrate_brings_a_database_up_to_date_and_check_tells(blank):
    behind = durable("migrate", "--check", DURABLE_DATABASE_URL=blank)
    assert (behind.returncode, "run `durable migrate`" in behind.stderr) == (1, True)

    done = durable("migrate", DURABLE_DATABASE_URL=blank)
    assert (done.returncode, done.stdout) == (0, f"the schema is at {migrate.newest()}\n")

    assert durable("migrate", "--check", DURABLE_DATABASE_URL=blank).returncode == 0


def test_migrate_has_nothing_to_do_where_newer_code_has_migrated_and_check_tells(blank):
    durable("migrate", DURABLE_DATABASE_URL=blank)
    with psycopg.connect(blank) as conn:
        conn.execute("UPDATE durable.alembic_version SET version_num = '9999'")

    done = durable("migrate", DURABLE_DATABASE_URL=blank)
    told = durable("migrate", "--json", DURABLE_DATABASE_URL=blank)
    checked = durable("migrate", "--check", DURABLE_DATABASE_URL=blank)

    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    assert "at 9999, migrated by a newer version of durable" in done.stdout
    assert "deploy the newer code" in done.stdout
    assert printed_json(told) == {"revision": "9999"}
    assert (checked.returncode, checked.stdout, checked.stderr) == (1, "", done.stdout)


def test_migrate_without_a_database_says_how_to_name_one():
    refused = durable("migrate")

    assert refused.returncode == 1
    assert "set DURABLE_DATABASE_URL" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://nobody@127.0.0.1:1/none", "cannot reach the database"),
        ("mysql://localhost/shop", "durable needs Postgres"),
        ("not a url", "cannot read the database URL"),
    ],
)
def test_migrate_with_a_database_that_cannot_be_used_says_what_is_wrong(url, says):
    refused = durable("migrate", DURABLE_DATABASE_URL=url)

    assert refused.returncode == 1
    assert says in refused.stderr
    assert "Traceback" not in refused.stderr


def test_migrate_prints_its_sql():
    printed = durable("migrate", "--sql")

    assert printed.returncode == 0
    assert "CREATE TABLE durable.workflows" in printed.stdout


def test_migrate_tells_programs_the_revision(blank):
    done = durable("migrate", "--json", DURABLE_DATABASE_URL=blank)

    assert printed_json(done) == {"revision": migrate.newest()}


class Bell(Workflow[None], unique="none"):
    @step
    def ring(self):
        pass


@pytest.mark.parametrize(("number", "says"), [(1, "1 message was due\n"), (2, "2 messages were due\n")])
def test_the_relay_counts_what_it_sent(with_broker, number, says):
    for _ in range(number):
        Bell.create(None, wait="1h")
    travel(hours=2)

    assert run("relay", "--once").stdout == says


def test_the_reaper_counts_what_it_did(runtime):
    Bell.create(None).cancel()
    travel(days=31)

    reaped = run("reap", "--once").stdout

    assert reaped == "0 steps recovered, 0 stuck workflows rescued, 1 ended workflow deleted\n"


def test_an_unknown_option_is_a_mistake_of_usage():
    assert durable("migrate", "--backwards").returncode == 2


def test_the_wheel_brings_the_migrations_and_the_types(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        check=True,
        capture_output=True,
        cwd=ROOT,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()

    for name in (
        "durable/migrations/env.py",
        "durable/migrations/versions/0001_the_first_tables.py",
        "durable/py.typed",
    ):
        assert name in names

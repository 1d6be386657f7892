"""Deploys: old and new code side by side, and workers that cannot start say why."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.acceptance.processes.app import Chain
from tests.acceptance.processes.newer_app import Newcomer
from tests.acceptance.processes.stage import ROOT, Stage, WorkerCommand
from tests.waiting import until

OLD = "tests.acceptance.processes.app"
NEW = "tests.acceptance.processes.app,tests.acceptance.processes.newer_app"
NEWCOMERS = 200
NOWHERE = "127.0.0.1:9"
"""Nothing listens on the discard port: what is refused must be refused before anything connects."""


# --- rolling


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_workflows_of_a_class_that_old_workers_do_not_have_are_all_run_by_the_new_ones(stage):
    old = stage.start_worker(modules=OLD)
    created = Newcomer.create_many(stage.subjects(NEWCOMERS))
    warning = "the workflow class 'newcomer' is not loaded here"
    until(lambda: warning in old.told, "the old worker has met one")

    new = stage.start_worker(modules=NEW)
    stage.await_finished(NEWCOMERS, seconds=120)

    assert len(created.created) == NEWCOMERS
    assert stage.dead_letters() == 0
    wrong = "SELECT workflow_id, step, count(*) FROM effects GROUP BY 1, 2 HAVING count(*) <> 1"
    assert stage.rows(wrong) == []
    assert stage.ask("SELECT count(*) FROM effects") == 2 * NEWCOMERS
    assert stage.ask("SELECT count(*) FROM durable.executions WHERE attempt <> 1 OR outcome <> 'success'") == 0
    assert stage.rows("SELECT DISTINCT w.pid FROM durable.executions e JOIN durable.workers w ON w.id = e.worker") == [
        (new.worker_pid,)
    ]
    stage.create(Chain)
    stage.await_finished(NEWCOMERS + 1)
    assert not old.ended
    stage.assert_sound()


# --- starting


def test_dramatiq_runs_an_application_s_own_module_as_well(stage):
    worker = stage.run_command("dramatiq", OLD, "-p", "1", "-t", "4", modules="")
    workflow = stage.create(Chain)

    stage.await_finished(1)

    assert stage.effects(workflow.id) == {"one": 1, "two": 1, "three": 1}
    assert stage.ask("SELECT count(*) FROM durable.workers") == 1
    worker.terminate()
    until(lambda: worker.ended, "the worker has ended")
    assert worker.process.returncode == 0
    assert stage.ask("SELECT count(*) FROM durable.workers") == 0
    stage.assert_sound()


@pytest.mark.parametrize("module", ["durable.actors", OLD])
def test_a_worker_refuses_a_database_that_was_not_migrated(stage, module):
    with stage.engine.begin() as conn:
        conn.execute(text("DROP SCHEMA durable CASCADE"))

    worker = stage.run_command("dramatiq", module, "-p", "1")

    assert_refuses(
        stage, worker, "the database's schema is at nothing, this version of durable needs", "durable migrate"
    )


def test_a_worker_refuses_a_database_of_an_older_version_but_not_of_a_newer_one(stage):
    be_at_revision(stage, "0001")
    refused = stage.run_command("dramatiq", "durable.actors", "-p", "1")
    assert_refuses(stage, refused, "the database's schema is at 0001", "durable migrate")

    be_at_revision(stage, "9999")
    stage.start_worker()  # it was migrated for those to come: this one still runs
    stage.create(Chain)
    stage.await_finished(1)


def be_at_revision(stage: Stage, revision: str) -> None:
    with stage.engine.begin() as conn:
        conn.execute(text("UPDATE durable.alembic_version SET version_num = :revision"), {"revision": revision})


def assert_refuses(stage: Stage, worker: WorkerCommand, *said: str) -> None:
    until(lambda: worker.ended, "the worker has ended")
    assert worker.process.returncode not in (0, None)
    assert_one_sentence(worker.told, *said)
    assert stage.redis.keys("*") == []


def start_without_servers(folder: Path, *modules: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run `dramatiq` in a folder with nothing set but the settings given, until it gives up."""
    urls = {"DURABLE_DATABASE_URL": f"postgresql://{NOWHERE}/none", "DURABLE_REDIS_URL": f"redis://{NOWHERE}"}
    given = {f"DURABLE_{name.upper()}": value for name, value in settings.items()}
    environment = {name: value for name, value in (urls | given).items() if value} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "dramatiq", *modules, "-p", "1"]
    return subprocess.run(
        command, cwd=folder, env=environment, timeout=60, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def assert_one_sentence(output: str, *said: str) -> None:
    """The reason is said in one line of ours, once, and without a traceback."""
    ours = [line for line in output.splitlines() if line.startswith("durable: ")]
    assert len(ours) == 1, output
    for part in said:
        assert part in ours[0]
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "no workflows were found: name the modules that define them in DURABLE_MODULES=myapp.workflows"),
        ({"modules": "no.such.module"}, "there is no module 'no', which DURABLE_MODULES"),
        ({"modules": "json"}, "there is no workflow class in json"),
        ({"modules": OLD, "redis_url": ""}, "durable does not know its broker"),
        ({"modules": OLD, "redis_url": "nonsense"}, "cannot read the Redis URL"),
        ({"modules": OLD, "database_url": ""}, "durable does not know its database"),
        ({"modules": OLD, "database_url": "mysql://127.0.0.1/x"}, "durable needs Postgres"),
    ],
    ids=[
        "no modules",
        "a wrong module",
        "a module without workflows",
        "no broker",
        "a wrong broker",
        "no database",
        "a wrong database",
    ],
)
def test_a_worker_that_cannot_start_says_why_in_one_sentence(tmp_path, settings, said):
    ended = start_without_servers(tmp_path, "durable.actors", **settings)

    assert ended.returncode != 0
    assert_one_sentence(ended.stdout, said)


def test_an_application_s_own_module_without_a_broker_says_so(tmp_path):
    ended = start_without_servers(tmp_path, OLD, redis_url="")

    assert ended.returncode != 0
    assert_one_sentence(ended.stdout, "durable does not know its broker")

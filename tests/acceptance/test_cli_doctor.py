"""`durable stats` and `durable doctor`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from durable import Workflow, migrate, registry, step
from durable import runtime as runtimes
from durable.cli.checks import skew
from durable.runtime import Runtime
from durable.settings import Settings
from durable.testing import perform_next_step, speedrun, travel
from tests.acceptance.test_cli import durable, printed_json, run
from tests.conftest import Subscription


class Patrol(Workflow[Subscription], queue="walls", unique="none"):
    @step
    def walk(self):
        if self.hero.closed:
            raise PermissionError("the gate is shut")


@pytest.fixture
def worker(runtime):
    """Register a worker that has every class, seen just now."""

    def register(id="worker-1", *, queues=("walls",), classes=None):
        with runtime.engine.begin() as conn:
            conn.execute(
                text(
                    "INSERT INTO durable.workers (id, host, pid, lock_key, queues, classes, started_at, seen_at) "
                    f"VALUES (:id, 'tower', 7, 1, :queues, :classes, {runtime.clock.sql}, {runtime.clock.sql})"
                ),
                {"id": id, "queues": list(queues), "classes": [Patrol.options.name] if classes is None else classes},
            )

    yield register
    with runtime.engine.begin() as conn:
        conn.execute(text("DELETE FROM durable.workers"))


@pytest.fixture
def closed(new_subscription, session):
    hero = new_subscription()
    hero.closed = True
    session.merge(hero)
    session.commit()
    return hero


# --- stats


def test_stats_count_everything(subscription, closed, worker):
    speedrun(Patrol.create(subscription))
    failed = perform_next_step(Patrol.create(closed))
    travel(minutes=2)
    waiting = Patrol.create(subscription)
    travel(minutes=1)
    worker()

    figures = printed_json(run("stats", "--json"))

    assert {(one["state"], one["number"], one["more"]) for one in figures["workflows"]} == {
        ("finished", 1, False),
        ("paused", 1, False),
        ("ready", 1, False),
    }
    assert {one["class"] for one in figures["workflows"]} == {Patrol.options.name}
    messages = figures["messages"]
    assert [messages[key]["number"] for key in ("outbox", "due", "overdue")] == [1, 1, 1]
    assert (60 <= messages["lag_seconds"] < 70, messages["oldest_workflow"]) == (True, str(waiting.id))
    assert [one["id"] for one in figures["workers"]] == ["worker-1"]
    assert figures["throughput"]["last_minute"]["executions"] == {"number": 0, "more": False}
    assert figures["throughput"]["last_hour"]["executions"] == {"number": 2, "more": False}
    assert figures["throughput"]["last_hour"]["workflows"] == {"number": 1, "more": False}
    (group,) = figures["failures"]
    assert (group["class"], group["step"], group["error_class"], group["count"], group["workflow_id"]) == (
        Patrol.options.name,
        "walk",
        "PermissionError",
        1,
        str(failed.id),
    )


@pytest.mark.parametrize("columns", [80, 120])
def test_stats_for_people_fit_the_terminal(subscription, closed, worker, columns):
    speedrun(Patrol.create(subscription))
    perform_next_step(Patrol.create(closed))
    waiting = Patrol.create(subscription)
    worker(queues=["walls", "towers", "gates", "moats", "dungeons"])
    travel(seconds=10)

    printed = run("stats", columns=columns).stdout

    assert max(len(line) for line in printed.splitlines()) <= columns
    for shown in ("Patrol", "finished", "1 in the outbox, 1 due, 0 overdue", f"durable explain {waiting.id}"):
        assert shown in printed
    for shown in ("tower:7", "dungeons", "PermissionError", "walk"):
        assert shown in printed


def test_stats_of_an_empty_database_say_that_nothing_is_there(runtime):
    printed = run("stats").stdout

    assert "none alive: start one with `durable worker`" in printed
    assert "0 in the outbox, 0 due" in printed


# --- doctor


def checked(done=None):
    """Return the checks by name."""
    return {one["name"]: one for one in printed_json(done or run("doctor", "--json"))["checks"]}


@pytest.fixture
def healthy(with_broker, worker):
    worker()
    return with_broker


def test_doctor_finds_everything_in_order(healthy, subscription):
    speedrun(Patrol.create(subscription))

    done = run("doctor", "--json")

    assert {name: one["status"] for name, one in checked(done).items()} == dict.fromkeys(
        (
            "database",
            "schema",
            "broker",
            "dead letters",
            "clock",
            "workers",
            "lag",
            "stuck",
            "classes",
            "paused",
        ),
        "ok",
    )
    assert (done.exit_code, printed_json(done)["ok"]) == (0, True)


def test_doctor_shows_the_database_without_its_password(healthy):
    says = checked()["database"]["says"]

    assert "answers" in says
    assert (healthy.engine.url.password or "no password at all") not in says


@pytest.mark.parametrize("columns", [80, 120])
def test_doctor_has_a_line_for_each_check_and_what_mends_it(runtime, columns):
    done = run("doctor", columns=columns)

    assert done.exit_code == 1
    assert max(len(line) for line in done.stdout.splitlines()) <= columns
    assert "OK       schema" in done.stdout
    assert "PROBLEM  workers" in done.stdout
    assert "→ `durable worker`" in done.stdout


def test_no_worker_is_a_problem(with_broker):
    check = checked()["workers"]

    assert (check["status"], check["mend"]) == ("problem", "`durable worker`")


def test_a_broker_that_is_not_named_is_a_problem(runtime):
    check = checked()["broker"]

    assert (check["status"], "set DURABLE_REDIS_URL" in check["says"]) == ("problem", True)
    assert checked()["dead letters"]["status"] == "unchecked"


def test_a_broker_that_does_not_answer_is_a_problem(runtime):
    settings = Settings(database_url=runtime.settings.database_url, redis_url="redis://127.0.0.1:1/0")
    runtimes.use(Runtime(settings, engine=runtime.engine))

    check = checked()["broker"]

    assert (check["status"], "cannot use the broker" in check["says"]) == ("problem", True)


def test_dead_letters_are_a_problem(healthy):
    healthy.broker.client.zadd("dramatiq:walls.XQ", {"one": 1, "two": 2})

    check = checked()["dead letters"]

    assert (check["status"], check["says"]) == ("problem", "2 in dramatiq:walls.XQ")
    assert "redis-cli DEL dramatiq:walls.XQ dramatiq:walls.XQ.msgs" in check["mend"]


def test_a_lag_is_a_problem(healthy, worker, subscription):
    workflow = Patrol.create(subscription)
    travel(seconds=25)
    assert checked()["lag"]["status"] == "ok"
    travel(seconds=10)

    check = checked()["lag"]

    assert (check["status"], check["mend"]) == ("problem", f"`durable explain {workflow.id}`")
    assert checked()["stuck"]["status"] == "ok"


def test_an_execution_that_is_overdue_for_very_long_is_stuck(healthy, subscription):
    workflow = Patrol.create(subscription)
    travel(minutes=16)

    check = checked()["stuck"]

    assert (check["status"], check["says"]) == ("problem", "1 execution overdue by more than 15m")
    assert check["mend"] == f"`durable explain {workflow.id}`"


def test_an_overdue_execution_that_lost_its_message_is_stuck_until_somebody_reaps(healthy, subscription):
    Patrol.create(subscription)
    delete_all(healthy, "outbox")
    travel(hours=3)

    check = checked()["stuck"]

    assert (check["status"], check["says"]) == ("problem", "1 execution overdue by more than 15m without a message")
    assert check["mend"] == "`durable reap --once`"
    assert run("reap", "--once").exit_code == 0
    assert "without a message" not in checked()["stuck"]["says"]


def test_a_ready_workflow_with_nothing_scheduled_is_stuck_until_somebody_reaps(healthy, subscription):
    Patrol.create(subscription)
    delete_all(healthy, "outbox", "executions")
    overdue = Patrol.create(subscription)
    travel(minutes=16)

    check = checked()["stuck"]

    assert check["says"] == "1 workflow ready with nothing scheduled, 1 execution overdue by more than 15m"
    assert check["mend"] == f"`durable reap --once`, then `durable explain {overdue.id}`"
    assert run("reap", "--once").exit_code == 0
    assert "nothing scheduled" not in checked()["stuck"]["says"]


def delete_all(runtime, *tables):
    """Do the damage that no code of ours does."""
    with runtime.engine.begin() as conn:
        for table in tables:
            conn.execute(text(f"DELETE FROM durable.{table}"))


def test_workflows_whose_class_is_loaded_nowhere_are_a_problem(healthy, worker, subscription):
    Patrol.create(subscription)
    name, versions = Patrol.options.name, registry.loaded()[Patrol.options.name]
    registry.forget(name)
    try:
        by_the_worker = checked()["classes"]
        with healthy.engine.begin() as conn:
            conn.execute(text("UPDATE durable.workers SET classes = '{}'"))
        by_nobody = checked()["classes"]
    finally:
        registry.register(versions[1], name, 1)

    assert by_the_worker["status"] == "ok"
    assert (by_nobody["status"], by_nobody["says"]) == (
        "problem",
        f"ongoing workflows have classes that are loaded nowhere: {name}",
    )
    assert f"durable list --class {name}" in by_nobody["mend"]


def test_paused_workflows_are_no_problem_but_worth_knowing(healthy, subscription):
    Patrol.create(subscription).pause()

    done = run("doctor", "--json")

    assert done.exit_code == 0
    assert (checked(done)["paused"]["status"], checked(done)["paused"]["says"]) == ("information", "1 workflow")


@pytest.mark.parametrize(("seconds", "off"), [(-5, 5), (0, 0), (0.5, 0), (1, 0), (4, 3)])
def test_a_clock_is_off_by_what_the_time_of_the_question_cannot_explain(seconds, off):
    before = datetime(2025, 1, 1, tzinfo=UTC)
    between = before + timedelta(seconds=seconds)

    measured = skew(between, before=before, after=before + timedelta(seconds=1))

    assert measured == timedelta(seconds=off)


def test_a_database_that_does_not_answer_leaves_the_rest_unchecked():
    done = durable("doctor", "--json", DURABLE_DATABASE_URL="postgresql://nobody@127.0.0.1:1/none")

    checks = checked(done)
    assert (done.returncode, checks["database"]["status"]) == (1, "problem")
    assert "cannot reach the database" in checks["database"]["says"]
    assert {checks[name]["status"] for name in ("schema", "workers", "lag", "classes")} == {"unchecked"}


@pytest.fixture
def at_revision(runtime):
    """Have the database say that it is at another revision."""

    def say(revision):
        with runtime.engine.begin() as conn:
            conn.execute(text("UPDATE durable.alembic_version SET version_num = :revision"), {"revision": revision})

    yield say
    say(migrate.newest())


def test_a_database_that_newer_code_has_migrated_is_not_to_be_migrated(at_revision):
    at_revision("9999")

    check = checked()["schema"]

    assert check["status"] == "problem"
    assert "migrated by a newer version of durable" in check["says"]
    assert "deploy the newer code" in check["says"]
    assert "durable migrate" not in str(check)


def test_a_database_that_is_behind_says_how_to_bring_it_up(at_revision):
    at_revision("0001")

    checks = checked()

    assert checks["schema"]["status"] == "problem"
    assert "run `durable migrate`" in checks["schema"]["says"]
    assert checks["workers"]["status"] == "unchecked"

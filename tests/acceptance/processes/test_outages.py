"""Redis and Postgres go away under load and come back: nothing is lost or doubled, and nobody has to help."""

from __future__ import annotations

import logging
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID, uuid4

import pytest
import redis
from sqlalchemy import text
from sqlalchemy.orm import Session

from tests.acceptance.processes.app import Chain, Hold, Subject
from tests.acceptance.processes.stage import Stage, WorkerCommand
from tests.waiting import until

WITHIN = 10.0
"""Seconds in which work flows again after an outage."""
QUICK = 0.5
"""Seconds that a create may usually take, whatever has become of Redis."""
HICCUP = 4.0
"""Seconds that any create may take: less than a Redis that does not answer would be waited for."""
LEASE = timedelta(seconds=15)
QUEUE = "dramatiq:default"


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_all_work_that_a_flushed_and_then_a_restarted_redis_has_forgotten_is_done_without_help(stage):
    begin_work(stage, 1000)

    flushed, forgotten = flush(stage)
    report_flow(stage, "after FLUSHALL", flushed, among=forgotten)

    await_successes(stage, 1000)
    stage.broker.stop(signal.SIGKILL)
    await_standstill(stage)
    assert stage.count("finished") < 1000
    stage.broker.start()
    report_flow(stage, "after a restart of Redis", now(stage))

    stage.await_finished(1000, seconds=120)
    stage.assert_sound()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_while_redis_is_down_creates_commit_at_once_and_steps_are_recorded(stage, tmp_path, caplog):
    go_on = tmp_path / "go on"
    start_two_workers(stage)
    held = Hold.create_many(stage.subjects(4), str(go_on)).created
    until(lambda: stage.began() == 4, "steps are running")
    heroes = stage.subjects(400)

    stage.broker.stop(signal.SIGKILL)
    go_on.touch()
    with caplog.at_level(logging.INFO):
        durations = create_for(stage, heroes, seconds=20)
    assert stage.successes() == {"hold": 4}
    assert stage.count("ready") == 4 + len(durations)
    stage.broker.start()
    report_flow(stage, "after 20 s without Redis", now(stage))

    stage.await_finished(4 + len(durations), seconds=120)
    assert [stage.effects(workflow_id) for workflow_id in held] == [{"hold": 1, "after": 1}] * 4
    stage.assert_sound()
    report(f"creates while Redis is down: {told(durations)}")
    assert_none_waited(durations)
    assert [(record.name, record.levelname) for record in caplog.records] == [("durable.courier", "WARNING")]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_workers_outlive_restarts_of_postgres_and_finish_their_work(stage):
    keep_what_is_committed(stage)
    workers = begin_work(stage, 600)
    before = crew(stage, workers)

    for done, how in (100, signal.SIGINT), (700, signal.SIGQUIT):
        await_successes(stage, done)
        restart_postgres(stage, how)
        assert stage.count("finished") < 600
        report_flow(stage, f"after {how.name} to Postgres", now(stage))

    stage.await_finished(600, seconds=120)
    assert crew(stage, workers) == before
    assert_nobody_was_buried(stage)
    stage.assert_sound()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_workers_whose_connections_are_all_cut_are_not_taken_for_dead(stage):
    workers = begin_work(stage, 600)
    before = crew(stage, workers)

    for done in (100, 500, 900):
        await_successes(stage, done)
        cut_connections(stage)
        assert stage.count("finished") < 600
        report_flow(stage, "after all connections were cut", now(stage))

    stage.await_finished(600, seconds=120)
    assert crew(stage, workers) == before
    assert_nobody_was_buried(stage)
    stage.assert_sound()


def fill(stage: Stage) -> None:
    """Fill Redis to its limit, and see that it takes nothing more."""
    stage.redis.config_set("maxmemory-policy", "noeviction")
    stage.redis.config_set("maxmemory", "1mb")
    until(lambda: not takes(stage.redis), "Redis is full")


def make_room(stage: Stage) -> None:
    stage.redis.config_set("maxmemory", 0)


def freeze(stage: Stage) -> None:
    """Have Redis take every call and answer none."""
    stage.broker.send(signal.SIGSTOP)


def thaw(stage: Stage) -> None:
    stage.broker.send(signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("disable", "mend"), [(fill, make_room), (freeze, thaw)], ids=["full", "frozen"])
def test_while_redis_takes_nothing_creates_commit_and_everything_runs_once_it_does(stage, tmp_path, disable, mend):
    go_on = tmp_path / "go on"
    start_two_workers(stage)
    Hold.create_many(stage.subjects(4), str(go_on))
    until(lambda: stage.began() == 4, "steps are running")

    disable(stage)
    go_on.touch()
    durations = create_for(stage, stage.subjects(100), seconds=8)
    until(lambda: stage.successes() == {"hold": 4}, "the steps that were running are recorded")
    assert stage.count("ready") == 4 + len(durations)
    mend(stage)
    report_flow(stage, "after Redis took messages again", now(stage))

    stage.await_finished(4 + len(durations), seconds=120)
    stage.assert_sound()
    report(f"creates while Redis takes nothing: {told(durations)}")
    assert_none_waited(durations)


# --- work


def start_two_workers(stage: Stage) -> list[WorkerCommand]:
    return [stage.start_worker() for _ in range(2)]


def begin_work(stage: Stage, count: int) -> list[WorkerCommand]:
    """Have two workers in the middle of many workflows."""
    workers = start_two_workers(stage)
    assert len(Chain.create_many(stage.subjects(count)).created) == count
    await_successes(stage, 100)
    return workers


def create_for(stage: Stage, heroes: Sequence[Subject], *, seconds: float) -> list[float]:
    """Create workflows for so long, every other one in a caller's session, and return how long each took."""
    durations = []
    pause = seconds / len(heroes)
    for number, hero in enumerate(heroes):
        began_at = time.monotonic()
        if number % 2:
            Chain.create(hero)
        else:
            with Session(stage.engine) as session, session.begin():
                Chain.create(session.merge(hero))
        durations.append(time.monotonic() - began_at)
        time.sleep(max(0.0, pause - durations[-1]))
    return durations


def await_successes(stage: Stage, count: int) -> None:
    until(lambda: sum(stage.successes().values()) >= count, f"{count} steps are done")


# --- outages


def flush(stage: Stage) -> tuple[datetime, list[UUID]]:
    """Flush Redis, and return when it was and the executions whose messages were waiting in it."""
    with stage.redis.pipeline(transaction=True) as pipe:
        forgotten, _ = pipe.lrange(QUEUE, 0, -1).flushall().execute()
    assert forgotten
    return now(stage), [UUID(key.decode()) for key in forgotten]


def takes(client: redis.Redis) -> bool:
    """Tell whether Redis takes another value."""
    try:
        return bool(client.set(f"filler-{uuid4()}", b"x" * 10_000))
    except redis.exceptions.OutOfMemoryError:
        return False


def restart_postgres(stage: Stage, how: signal.Signals) -> None:
    stage.database.stop(how)
    stage.database.start()
    stage.engine.dispose()


def keep_what_is_committed(stage: Stage) -> None:
    """Have commits written out before they are answered, as everywhere but in tests: a killed Postgres keeps them."""
    with stage.engine.begin() as conn:
        conn.execute(text("ALTER DATABASE durable SET synchronous_commit = on"))
    stage.engine.dispose()


def cut_connections(stage: Stage) -> None:
    """End every connection of the database but the one that does it."""
    others = "datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    assert stage.ask(f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {others}") > 2
    stage.engine.dispose()


# --- what is seen


def now(stage: Stage) -> datetime:
    return stage.ask("SELECT clock_timestamp()")


def await_standstill(stage: Stage) -> None:
    """Wait until workers have done what they had fetched before Redis went away."""
    query = "SELECT count(*) FROM durable.executions WHERE started_at > clock_timestamp() - interval '1 second'"
    until(lambda: stage.ask(query) == 0, "nothing is begun any more")


def report_flow(stage: Stage, what: str, since: datetime, *, among: Sequence[UUID] | None = None) -> None:
    """Wait until an execution is begun, say after how long, and see that it was soon enough."""
    query = """SELECT min(started_at) FROM durable.executions
               WHERE started_at > :since AND (CAST(:among AS uuid[]) IS NULL OR id = ANY(:among))"""
    values = {"since": since, "among": None if among is None else list(among)}
    flowed = until(lambda: stage.ask(query, **values), f"work flows again {what}")
    seconds = (flowed - since).total_seconds()
    report(f"work flows again {what}: {seconds:.2f} s")
    assert seconds <= WITHIN


def crew(stage: Stage, workers: Sequence[WorkerCommand]) -> tuple[object, ...]:
    """Return who works: the commands, their processes, and under which names those are known."""
    names = stage.rows("SELECT id, pid FROM durable.workers ORDER BY id")
    return [(worker.process.pid, worker.worker_pid, worker.ended) for worker in workers], names


def assert_nobody_was_buried(stage: Stage) -> None:
    """See that claims were only ever recovered because their lease ran out.

    That happens when Postgres commits a claim and goes away before it says so: nobody knows of it, and nobody keeps it.
    A burial ends leases at once, and no step of these takes anything near a lease.
    """
    soon = "SELECT id FROM durable.executions WHERE outcome = 'recovered' AND finished_at < started_at + :lease"
    assert stage.rows(soon, lease=LEASE) == []
    outcomes = dict(stage.rows("SELECT outcome, count(*) FROM durable.executions GROUP BY outcome"))
    assert set(outcomes) <= {"success", "interrupted", "recovered"}
    report(f"outcomes: {outcomes}")
    logs = "".join(worker.told for worker in stage.workers)
    assert "is gone" not in logs
    assert "taken for dead" not in logs


def assert_none_waited(durations: Sequence[float]) -> None:
    """See that no create waited for Redis; a machine that others share may hold anybody up for a moment."""
    assert statistics.median(durations) < QUICK
    assert max(durations) < HICCUP


def told(durations: Sequence[float]) -> str:
    middle, most = statistics.median(durations), max(durations)
    return f"{len(durations)}, p50 {1000 * middle:.1f} ms, max {1000 * most:.1f} ms"


def report(figures: str) -> None:
    sys.stdout.write(figures + "\n")

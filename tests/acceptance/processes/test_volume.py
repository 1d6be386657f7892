"""Many executions at once: a backlog, a herd that falls due together, and a million that wait."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from sqlalchemy import Connection, select, text
from sqlalchemy.orm import Session

from durable import relay
from durable.store import outbox
from tests.acceptance.processes.app import Later, Subject
from tests.acceptance.processes.stage import Stage
from tests.waiting import until

QUEUE = "dramatiq:default"
BACKLOG = 100_000
MILLION = 1_000_000
HERD = 10_000
NEXT_MONTH = timedelta(days=30)
QUICK = 5.0
"""Milliseconds that the relay's statements may take, by Postgres's own account."""
MEGABYTE = 1_000_000
GAP = timedelta(seconds=5)
"""A time without work that could not be a hiccup of the machine; messages that were lost would cost half a minute."""


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_a_backlog_of_a_hundred_thousand_is_pushed_once_however_often_the_relay_looks(stage):
    with relaying(stage):
        Later.create_many(many_subjects(stage, BACKLOG))
        until(lambda: looked_at(stage) == BACKLOG, "the relay has looked at every message", seconds=300)

    assert len(set(stage.redis.lrange(QUEUE, 0, -1))) == BACKLOG
    say(f"\n{BACKLOG:,} ready, all looked at by the relay: {pushes(stage):,} pushes")
    assert pushes(stage) < 1.01 * BACKLOG

    # Whether a push is one too many shows where messages are taken: a part of the backlog does for that.
    stage.start_worker(threads=8)
    stage.start_worker(threads=8)
    stage.await_finished(BACKLOG // 20, seconds=120)
    say(f"{stage.count('finished'):,} of them finished: {pushes(stage):,} pushes")
    assert pushes(stage) < 1.01 * BACKLOG


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_herd_that_falls_due_at_one_instant_is_sent_in_one_go_and_in_order(stage):
    Later.create_many(many_subjects(stage, HERD), wait="3s")
    in_order = [
        id for (id,) in stage.rows("SELECT execution_id::text FROM durable.outbox ORDER BY due_at, execution_id")
    ]
    until(lambda: stage.ask("SELECT max(due_at) <= now() FROM durable.outbox"), "all are due")

    assert relay.drain(stage.runtime) == HERD
    assert [id.decode() for id in stage.redis.lrange(QUEUE, 0, -1)] == in_order

    stage.start_worker(threads=8)
    stage.start_worker(threads=8)
    stage.await_finished(HERD, seconds=200)

    assert stage.ask("SELECT count(*) FROM durable.executions WHERE started_at < scheduled_for") == 0
    assert pushes(stage) < 1.01 * HERD
    stage.assert_sound()
    say_drain(stage)
    assert_drained_in_order(stage, in_order)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_million_that_wait_for_next_month_cost_rows_and_nothing_else(stage):
    freeze_statistics(stage)
    worker = stage.start_worker()
    usual_delay(stage)
    memory, in_redis = resident(worker.worker_pid), used_by_redis(stage)

    analyze(stage)  # at a moment when nothing waits
    add_waiting(stage, MILLION)
    for statistics, renew in {"outdated": None, "missing": forget_statistics, "fresh": analyze}.items():
        if renew is not None:
            renew(stage)
        explain_relay(stage, statistics)
        stage.engine.dispose()  # what this process has read is accounted for when its connections have ended
        await_beats(stage, 2)
        before = rows_read(stage)
        delayed = usual_delay(stage)
        await_beats(stage, 4)  # in which its relay, its reaper and its pulse have looked as well
        read = rows_read(stage) - before
        say(f"statistics {statistics}: a step starts after {delayed}; for 20 of them {read:,} rows are read")
        assert delayed < timedelta(seconds=1)
        assert read < MILLION / 10, "some statement reads a table or an index from end to end"

    grown, grown_in_redis = resident(worker.worker_pid) - memory, used_by_redis(stage) - in_redis
    say(f"the worker has grown by {grown / MEGABYTE:.1f} MB, Redis by {grown_in_redis / MEGABYTE:.2f} MB")
    assert grown < 10 * MEGABYTE
    assert grown_in_redis < 2 * MEGABYTE
    assert stage.ask("SELECT count(*) FROM durable.outbox") == MILLION


def explain_relay(stage: Stage, statistics: str) -> None:
    """Show how the relay's statements are executed, and see that they are quick."""
    for due in (0, 10):
        plan, took = explained(stage, outbox.TAKE_DUE, due=due)
        say(f"\ntake_due with {due} due, statistics {statistics}: {took:.3f} ms\n{outline(plan)}")
        assert goes_by_index(plan)
        assert took < QUICK
    plan, took = explained(stage, outbox.NEXT_DUE_IN)
    say(f"next_due_in, statistics {statistics}: {took:.3f} ms\n{outline(plan)}")
    assert goes_by_index(plan)
    assert took < QUICK


@contextmanager
def relaying(stage: Stage) -> Iterator[None]:
    """Run a relay in this process, as nobody else does."""
    loop = relay.relay_loop(stage.runtime)
    loop.start()
    try:
        yield
    finally:
        loop.stop()


def say(figures: str) -> None:
    """Show figures to whoever runs this with -s."""
    sys.stdout.write(f"{figures}\n")


def many_subjects(stage: Stage, count: int) -> list[Subject]:
    """Make committed heroes that belong to no session, more than one would add one by one."""
    with stage.engine.begin() as conn:
        conn.execute(text("INSERT INTO subjects (note) SELECT '' FROM generate_series(1, :count)"), {"count": count})
    with Session(stage.engine) as session:
        found = list(session.scalars(select(Subject).order_by(Subject.id)))
        session.expunge_all()
    return found


def looked_at(stage: Stage) -> int:
    return int(stage.ask("SELECT count(*) FROM durable.outbox WHERE sends > 0"))


def pushes(stage: Stage) -> int:
    """Return how often anything was pushed into a queue since Redis began."""
    return int(stage.redis.info("commandstats")["cmdstat_rpush"]["calls"])


def say_drain(stage: Stage) -> None:
    rate = stage.ask("SELECT count(*) / extract(epoch FROM max(finished_at) - min(started_at)) FROM durable.executions")
    say(f"\n{HERD:,} at once: {rate:.0f} steps/s, {pushes(stage):,} pushes")


def assert_drained_in_order(stage: Stage, in_order: Sequence[str]) -> None:
    """Steps started in the order of their messages, but for what workers have in hand at once, and without a gap."""
    started = stage.rows("SELECT id::text, started_at FROM durable.executions ORDER BY started_at")
    place = {id: number for number, id in enumerate(in_order)}
    farthest = max(abs(number - place[id]) for number, (id, _) in enumerate(started))
    longest = max(later - earlier for (_, earlier), (_, later) in pairwise(started))
    say(f"at most {farthest} places out of order, longest time without a start {longest}")
    assert farthest < HERD / 10
    assert longest < GAP


def usual_delay(stage: Stage) -> timedelta:
    """Run workflows one after the other, and return how long after its creation a step starts: the median."""
    return median(delay(stage) for _ in range(20))


def delay(stage: Stage) -> timedelta:
    workflow = stage.create(Later)
    until(lambda: workflow.refresh().state not in ("ready", "performing"), f"{workflow!r} has ended")
    assert workflow.state == "finished", workflow.history
    (execution,) = workflow.history
    return execution.started_at - workflow.created_at


def await_beats(stage: Stage, seconds: float) -> None:
    """Wait until the only worker has been at its work for so long."""
    query = "SELECT max(seen_at) >= CAST(:since AS timestamptz) + make_interval(secs => :seconds) FROM durable.workers"
    since = stage.ask("SELECT now()")
    until(lambda: stage.ask(query, since=since, seconds=seconds), "the worker has been at its work for a while")


def resident(pid: int) -> int:
    """Return the memory that a process holds, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])


def used_by_redis(stage: Stage) -> int:
    return int(stage.redis.info("memory")["used_memory"])


# --- a million rows

WORKFLOW = "CAST('01900000-0000-7000-8000-' || lpad(to_hex(i), 12, '0') AS uuid)"
EXECUTION = "CAST('01900000-0000-7000-9000-' || lpad(to_hex(i), 12, '0') AS uuid)"
COPIES = (
    f"""INSERT INTO durable.workflows (id, name, version, hero_type, hero_key, state, step, queue, priority, input,
                                       data, unique_key, unique_in, created_at)
        SELECT {WORKFLOW}, name, version, hero_type, i::text, state, step, queue, priority, input,
               data, hero_type || ':' || i, unique_in, created_at
        FROM durable.workflows, generate_series(:first, :last) i WHERE id = :workflow""",
    f"""INSERT INTO durable.executions (id, workflow_id, step, state, attempt, reattempts, crashes, idempotency_key,
                                        scheduled_for)
        SELECT {EXECUTION}, {WORKFLOW}, step, state, attempt, reattempts, crashes, {EXECUTION}, scheduled_for
        FROM durable.executions, generate_series(:first, :last) i WHERE workflow_id = :workflow""",
    f"""INSERT INTO durable.outbox (execution_id, name, queue, priority, due_at)
        SELECT {EXECUTION}, o.name, o.queue, o.priority, o.due_at
        FROM durable.outbox o JOIN durable.executions e ON e.id = o.execution_id AND e.workflow_id = :workflow,
             generate_series(:first, :last) i""",
)


def add_waiting(stage: Stage, count: int) -> None:
    """Have workflows wait for next month: one that was created, and copies of its rows."""
    workflow = stage.create(Later, wait=NEXT_MONTH)
    first = 1_000_000_000
    values = {"first": first, "last": first + count - 2, "workflow": workflow.id}
    with stage.engine.begin() as conn:
        for copy in COPIES:
            conn.execute(text(copy), values)
    assert stage.ask("SELECT count(*) FROM durable.outbox WHERE due_at > now() + interval '29 days'") == count


# --- what Postgres believes

TABLES = ("durable.workflows", "durable.executions", "durable.outbox")


def freeze_statistics(stage: Stage) -> None:
    """Have nobody but this test renew what Postgres believes of the tables."""
    with stage.engine.begin() as conn:
        for table in TABLES:
            conn.execute(text(f"ALTER TABLE {table} SET (autovacuum_enabled = off)"))


def analyze(stage: Stage) -> None:
    with stage.engine.begin() as conn:
        conn.execute(text(f"ANALYZE {', '.join(TABLES)}"))


def forget_statistics(stage: Stage) -> None:
    """Have Postgres believe nothing, as of tables that are new."""
    tables = "SELECT oid FROM pg_class WHERE oid = ANY(CAST(:tables AS regclass[]))"
    theirs = f"{tables} UNION ALL SELECT indexrelid FROM pg_index WHERE indrelid IN ({tables})"
    with stage.engine.begin() as conn:
        values = {"tables": list(TABLES)}
        conn.execute(text(f"DELETE FROM pg_statistic WHERE starelid IN ({tables})"), values)
        conn.execute(text(f"UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE oid IN ({theirs})"), values)


def rows_read(stage: Stage) -> int:
    """Return how many rows and entries of indexes were read in the tables so far, by Postgres's own account."""
    return int(
        stage.ask(
            """SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE schemaname = 'durable')
                    + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname = 'durable')"""
        )
    )


# --- the relay's statements, explained


def explained(stage: Stage, statement: str, *, due: int = 0, times: int = 20) -> tuple[dict[str, Any], float]:
    """Return the plan of a statement of the relay's, and the milliseconds it takes: the median."""
    explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.format(now=stage.runtime.clock.sql)}"
    stuck = stage.runtime.settings.stuck_scheduled_after
    values = {"limit": relay.BATCH, "again": relay.AGAIN, "stuck": stuck}
    found = []
    for _ in range(times):
        with stage.engine.connect() as conn:  # rolled back at its end, so that each time the same is due
            fall_due(conn, due)
            answer = conn.exec_driver_sql(explain, values).scalar_one()
            found.append((answer if isinstance(answer, list) else json.loads(answer))[0])
    return found[-1]["Plan"], median(one["Execution Time"] for one in found)


def fall_due(conn: Connection, count: int) -> None:
    earliest = "SELECT execution_id FROM durable.outbox ORDER BY due_at LIMIT :count"
    conn.execute(
        text(f"UPDATE durable.outbox SET due_at = now() - interval '1 s' WHERE execution_id = ANY(ARRAY({earliest}))"),
        {"count": count},
    )


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


def goes_by_index(plan: dict[str, Any]) -> bool:
    """Tell whether due messages are found by the index of due times, and no table is read from end to end."""
    found = list(nodes(plan))
    whole = [node["Relation Name"] for node in found if node["Node Type"] == "Seq Scan"]
    return not whole and any(node.get("Index Name") == "outbox_due_at_idx" for node in found)


def outline(plan: dict[str, Any], depth: int = 1) -> str:
    """Return a plan in a few words a line."""
    about = [plan["Node Type"], plan.get("Relation Name", ""), plan.get("Index Name", ""), plan.get("CTE Name", "")]
    line = f"{'  ' * depth}{' '.join(filter(None, about))}: {plan['Actual Rows'] * plan['Actual Loops']:.0f} rows"
    return "\n".join([line, *(outline(inner, depth + 1) for inner in plan.get("Plans", ()))])

"""What is counted: for `stats`, `explain` and `doctor`, on tables of any size."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import text

from durable import Workflow, step
from durable.reaper import rescue_stuck
from durable.store import statistics
from durable.store.statistics import Count
from durable.testing import perform_next_step, speedrun, travel
from tests.conftest import Subscription
from tests.scenes import claim

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


class Letterbox(Workflow[Subscription], queue="letterboxes", unique="none"):
    @step
    def empty(self):
        if self.hero.closed:
            raise LookupError("no letters")

    @step(wait="2h")
    def sort(self):
        pass


class Stamp(Workflow[None], unique="none"):
    @step
    def print(self):
        pass


@pytest.fixture
def conn(runtime):
    with runtime.statement() as conn:
        yield conn


@pytest.fixture
def worker(runtime):
    """Register workers, seen so long ago."""

    def register(id, seen=timedelta(), **values):
        row = {"id": id, "seen": seen, "queues": ["default"], "classes": [], **values}
        with runtime.engine.begin() as conn:
            conn.execute(
                text(
                    "INSERT INTO durable.workers (id, host, pid, lock_key, queues, classes, started_at, seen_at) "
                    f"VALUES (:id, 'here', 7, 1, :queues, :classes, {runtime.clock.sql} - interval '1h', "
                    f"{runtime.clock.sql} - CAST(:seen AS interval))"
                ),
                row,
            )

    yield register
    with runtime.engine.begin() as conn:
        conn.execute(text("DELETE FROM durable.workers"))


def counts(tallies):
    return {(tally.name.rpartition(".")[2], tally.state.value): str(tally.count) for tally in tallies}


def measure(conn, runtime, *, late=MINUTE, cap=100):
    return statistics.backlog(conn, runtime.clock, late=late, reach=timedelta(minutes=15), cap=cap)


# --- workflows


def test_ongoing_workflows_are_counted_by_class_and_state(conn, subscription):
    Letterbox.create(subscription)
    Letterbox.create(subscription).pause()
    Letterbox.create(subscription).cancel()
    Stamp.create(None)

    assert counts(statistics.ongoing(conn, cap=10)) == {
        ("Letterbox", "paused"): "1",
        ("Letterbox", "ready"): "1",
        ("Stamp", "ready"): "1",
    }


def test_of_each_class_no_more_ongoing_workflows_are_counted_than_the_cap(conn, subscription):
    for _ in range(3):
        Letterbox.create(subscription)
    Stamp.create(None)

    assert counts(statistics.ongoing(conn, cap=2)) == {("Letterbox", "ready"): "2+", ("Stamp", "ready"): "1"}
    assert counts(statistics.ongoing(conn, cap=3)) == {("Letterbox", "ready"): "3", ("Stamp", "ready"): "1"}


def test_of_ended_workflows_the_latest_are_counted(conn, subscription):
    Letterbox.create(subscription).cancel()
    for _ in range(2):
        speedrun(Stamp.create(None))

    assert counts(statistics.ended(conn, cap=3)) == {("Letterbox", "canceled"): "1", ("Stamp", "finished"): "2"}
    assert counts(statistics.ended(conn, cap=1)) == {("Stamp", "finished"): "1+"}


def test_the_names_of_classes_and_heroes_are_found_without_counting(conn, subscription):
    assert (statistics.class_names(conn), statistics.hero_types(conn)) == ([], [])
    for _ in range(2):
        Letterbox.create(subscription)
        Stamp.create(None)

    assert statistics.class_names(conn) == [Letterbox.options.name, Stamp.options.name]
    assert statistics.hero_types(conn) == ["tests.conftest.Subscription"]


# --- messages


def test_an_empty_outbox_has_no_lag(conn, runtime):
    backlog = measure(conn, runtime)

    assert (backlog.size, backlog.due, backlog.overdue, backlog.lag, backlog.oldest) == (
        *(Count(0),) * 3,
        timedelta(),
        None,
    )


def test_the_backlog_tells_what_is_due_what_is_overdue_and_the_lag_of_the_oldest(conn, runtime):
    Stamp.create(None, wait="1h")
    oldest = Stamp.create(None)
    travel(minutes=10)
    Stamp.create(None)

    backlog = measure(conn, runtime)

    assert (backlog.size, backlog.due, backlog.overdue) == (Count(3), Count(2), Count(1))
    assert timedelta(minutes=10) <= backlog.lag < timedelta(minutes=11)
    assert backlog.oldest == oldest.id


def test_a_message_that_was_sent_and_not_taken_counts_from_when_it_was_due(conn, runtime):
    Stamp.create(None)
    travel(minutes=10)
    with runtime.engine.begin() as other:
        other.execute(text(f"UPDATE durable.outbox SET sends = 4, due_at = {runtime.clock.sql} + interval '8 min'"))

    assert timedelta(minutes=10) <= measure(conn, runtime).lag < timedelta(minutes=11)


def test_a_backlog_is_counted_up_to_the_cap_and_the_outbox_up_to_ten_times_of_it(conn, runtime):
    for _ in range(11):
        Stamp.create(None)

    backlog = measure(conn, runtime, cap=1, late=timedelta())

    assert (backlog.size, backlog.due, backlog.overdue) == (Count(10, more=True), *(Count(1, more=True),) * 2)


def count_damage(conn, runtime, *, cap=100):
    found = statistics.damage(conn, runtime.clock, overdue=timedelta(minutes=15), cap=cap)
    return found.without_message, found.without_execution


def test_what_a_message_will_wake_or_somebody_stopped_is_no_damage(conn, runtime):
    Stamp.create(None)
    Stamp.create(None).pause()
    Stamp.create(None).cancel()
    claim(runtime, Stamp.create(None))
    travel(hours=3)

    assert count_damage(conn, runtime) == (Count(0), Count(0))


@pytest.mark.parametrize(("tables", "found"), [(["outbox"], (2, 0)), (["outbox", "executions"], (0, 2))])
def test_ready_workflows_that_nothing_would_wake_are_damage_that_a_reaper_mends(conn, runtime, tables, found):
    for _ in range(2):
        Stamp.create(None)
    for table in tables:
        conn.execute(text(f"DELETE FROM durable.{table}"))
    travel(minutes=14)
    assert count_damage(conn, runtime) == (Count(0), Count(0))
    travel(minutes=2)

    assert count_damage(conn, runtime) == tuple(map(Count, found))
    assert count_damage(conn, runtime, cap=1) == tuple(Count(min(number, 1), more=number > 1) for number in found)
    assert rescue_stuck(runtime) == 2
    assert count_damage(conn, runtime) == (Count(0), Count(0))


def test_an_executions_message_tells_how_often_it_was_sent(conn, runtime):
    execution = Stamp.create(None).current_execution
    with runtime.engine.begin() as other:
        other.execute(text("UPDATE durable.outbox SET sends = 3"))

    assert statistics.message_of(conn, execution.id).sends == 3


def test_an_execution_that_was_claimed_has_a_lease_and_no_message(conn, runtime):
    workflow = Stamp.create(None)
    held = claim(runtime, workflow)

    assert statistics.message_of(conn, held.execution_id) is None
    assert statistics.lease_of(conn, held.execution_id) > statistics.now(conn, runtime.clock)


# --- pace and failures


def test_the_pace_is_what_ended_within_a_while(conn, runtime, subscription):
    speedrun(Stamp.create(None))
    travel(minutes=30)
    perform_next_step(Letterbox.create(subscription))

    minute = statistics.pace(conn, runtime.clock, within=MINUTE, cap=10)
    hour = statistics.pace(conn, runtime.clock, within=HOUR, cap=10)

    assert (minute.executions, minute.workflows) == (Count(1), Count(0))
    assert (hour.executions, hour.workflows) == (Count(2), Count(1))
    assert statistics.pace(conn, runtime.clock, within=HOUR, cap=1).executions == Count(1, more=True)


def test_errors_are_grouped_by_class_step_and_error_the_most_frequent_first(conn, runtime, new_subscription, session):
    closed = new_subscription()
    closed.closed = True
    session.merge(closed)
    session.commit()
    for _ in range(2):
        last = perform_next_step(Letterbox.create(closed))

    (group,) = statistics.failures(conn, runtime.clock, within=HOUR, cap=10)

    assert (group.name, group.step, group.error_class, group.count) == (
        Letterbox.options.name,
        "empty",
        "LookupError",
        2,
    )
    assert (group.workflow_id, group.last) == (last.id, last.history[-1].finished_at)
    travel(hours=2)
    assert statistics.failures(conn, runtime.clock, within=HOUR, cap=10) == []


# --- workers and clocks


def test_a_worker_is_alive_while_it_was_seen_lately(conn, runtime, worker):
    worker("fresh", queues=["b", "a"], classes=["C"])
    worker("silent", seen=timedelta(seconds=20))

    found = {one.id: one for one in statistics.workers(conn, runtime.clock, lost_after=timedelta(seconds=15))}

    assert {id: one.alive for id, one in found.items()} == {"fresh": True, "silent": False}
    assert (found["fresh"].queues, found["fresh"].classes) == (("a", "b"), ("C",))


def test_a_worker_performs_the_executions_that_it_has_claimed(conn, runtime, worker):
    worker("a test")
    claim(runtime, Stamp.create(None))

    (found,) = statistics.workers(conn, runtime.clock, lost_after=MINUTE)

    assert found.performing == 1


def test_the_present_moves_with_the_clock_and_the_servers_time_does_not(conn, runtime):
    travel(days=1)

    ahead = statistics.now(conn, runtime.clock) - statistics.server_time(conn)

    assert timedelta(hours=23) < ahead <= timedelta(days=1)

"""Housekeeping: what ended long ago is deleted, what lost its way is found, and everything else is left alone."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from durable import Workflow, reaper, step
from durable.reaper import TIDY_EVERY, Reaper, delete_ended, rescue_stuck
from durable.runtime import Runtime
from durable.testing import speedrun, travel
from tests.conftest import Subscription
from tests.scenes import BRING_TO


class Renewal(Workflow[Subscription]):
    @step
    def charge(self):
        if self.hero.note == "fail":
            self.fail("as asked")

    @step
    def thank(self):
        pass

    @step
    def remember(self):
        pass


def count(runtime, table):
    with runtime.engine.connect() as conn:
        return conn.execute(text(f"SELECT count(*) FROM durable.{table}")).scalar()


def test_what_ended_thirty_days_ago_is_deleted_with_all_that_belongs_to_it(runtime, new_subscription):
    speedrun(Renewal.create(new_subscription()))
    Renewal.create(new_subscription()).cancel("no more")
    ongoing = Renewal.create(new_subscription())
    travel(days=29)
    assert delete_ended(runtime) == 0
    travel(days=2)

    assert delete_ended(runtime) == 2
    assert [workflow.id for workflow in Renewal.list()] == [ongoing.id]
    assert (count(runtime, "executions"), count(runtime, "audit")) == (1, 0)


@pytest.mark.parametrize("state", ["ready", "performing", "waiting", "paused", "compensating"])
def test_what_is_ongoing_is_never_deleted(runtime, subscription, state):
    workflow = Renewal.create(subscription)
    BRING_TO[state](runtime, workflow)
    travel(days=365)

    assert delete_ended(runtime) == 0


def test_more_than_a_batch_is_deleted_batch_by_batch(runtime, new_subscription, monkeypatch):
    monkeypatch.setattr(reaper, "BATCH", 3)
    for _ in range(8):
        Renewal.create(new_subscription()).cancel()
    travel(days=31)

    assert (delete_ended(runtime), Renewal.count()) == (8, 0)


def test_a_reaper_deletes_one_batch_each_time_it_looks_until_nothing_is_left(runtime, new_subscription, monkeypatch):
    passed = [100.0]
    monkeypatch.setattr("durable.reaper.time.monotonic", lambda: passed[0])
    monkeypatch.setattr(reaper, "BATCH", 3)
    for _ in range(7):
        Renewal.create(new_subscription()).cancel()
    travel(days=31)
    looking = Reaper(runtime)
    left = []
    for seconds in (0, TIDY_EVERY, 1, 1):
        passed[0] += seconds
        looking.tick()
        left.append(Renewal.count())

    assert left == [7, 4, 1, 0]


def test_never_means_never(runtime, subscription):
    Renewal.create(subscription).cancel()
    travel(days=3650)
    kept = Runtime(runtime.settings.model_copy(update={"delete_after": None}), engine=runtime.engine)
    kept.clock = runtime.clock

    assert delete_ended(kept) == 0


def test_an_overdue_execution_whose_message_was_destroyed_gets_a_new_one(runtime, new_subscription):
    lost, fresh = Renewal.create(new_subscription()), Renewal.create(new_subscription(), wait="15m")
    with runtime.engine.begin() as conn:
        conn.execute(text("DELETE FROM durable.outbox"))
    travel(minutes=16)

    assert rescue_stuck(runtime) == 1
    with runtime.engine.begin() as conn:
        found = conn.execute(text("SELECT execution_id FROM durable.outbox")).scalars().all()
        assert found == [lost.current_execution.id]
        conn.execute(text("DELETE FROM durable.workflows WHERE id = :id"), {"id": fresh.id})


def test_a_paused_workflow_gets_no_message_however_overdue_it_is(runtime, subscription):
    Renewal.create(subscription).pause("hold")
    travel(days=3)

    assert (rescue_stuck(runtime), count(runtime, "outbox")) == (0, 0)


def test_a_ready_workflow_with_nothing_scheduled_pauses_with_a_reason_and_can_be_resumed(runtime, subscription):
    workflow = Renewal.create(subscription)
    with runtime.engine.begin() as conn:
        conn.execute(text("DELETE FROM durable.executions"))
        conn.execute(text("DELETE FROM durable.outbox"))
    travel(minutes=16)

    assert rescue_stuck(runtime) == 1
    assert workflow.refresh().state == "paused"
    assert "resume() schedules its step again" in workflow.reason
    assert speedrun(workflow.resume()).state == "finished"

"""Claim and settle, on their own: what a worker may write, and what it may not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

from sqlalchemy import text

from durable import Workflow, step
from durable.ids import new_id
from durable.store import claims
from durable.store.claims import Terms
from durable.testing import travel
from tests.conftest import Subscription
from tests.scenes import claim, claim_id, settle
from tests.waiting import until

LEASE = timedelta(milliseconds=500)


class Renewal(Workflow[Subscription]):
    @step
    def first(self):
        pass

    @step
    def second(self):
        pass


def test_a_claim_holds_everything_the_step_needs(runtime, subscription):
    workflow = Renewal.create(subscription, {"a": 1})

    held = claim(runtime, workflow)

    assert (held.workflow_id, held.name, held.step, held.attempt) == (workflow.id, workflow.name, "first", 1)
    assert (held.hero_key, held.input, held.data) == (str(subscription.id), {"a": 1}, {})
    assert held.workflow == replace(workflow.refresh()._row, state="performing")


def test_a_settle_with_another_token_writes_nothing(runtime, subscription):
    workflow = Renewal.create(subscription)
    held = claim(runtime, workflow)

    assert settle(runtime, Renewal, replace(held, token=new_id())) is None
    assert workflow.refresh().state == "performing"
    assert settle(runtime, Renewal, held) == "ready"


def test_a_settle_happens_once(runtime, subscription):
    workflow = Renewal.create(subscription)
    held = claim(runtime, workflow)

    assert [settle(runtime, Renewal, held), settle(runtime, Renewal, held)] == ["ready", None]
    assert [e.step for e in workflow.history] == ["first", "second"]


def test_an_execution_that_does_not_exist_is_not_to_be_claimed(runtime):
    assert claim_id(runtime, Renewal.options.name, uuid4()) is None


def test_an_execution_that_is_taken_ended_or_paused_is_not_to_be_claimed(runtime, subscription):
    workflow = Renewal.create(subscription)
    first = workflow.current_execution.id
    workflow.pause()
    assert claim_id(runtime, workflow.name, first) is None
    workflow.resume()
    held = claim(runtime, workflow)
    assert claim_id(runtime, workflow.name, first) is None
    settle(runtime, Renewal, held)

    assert claim_id(runtime, workflow.name, first) is None


def test_the_reaper_cannot_end_a_claim_whose_lease_was_extended_after_it_looked(runtime, subscription):
    workflow = Renewal.create(subscription)
    held = claim(runtime, workflow)

    assert settle(runtime, Renewal, held, expired=True) is None
    travel(minutes=1)
    assert settle(runtime, Renewal, held, expired=True) == "ready"


def test_a_claim_that_had_to_wait_for_its_row_has_its_whole_lease_afterwards(runtime, subscription):
    workflow = Renewal.create(subscription)
    execution = workflow.current_execution.id
    terms = Terms("a test", LEASE, suspicious=99)

    def take():
        with runtime.hot() as conn:
            return claims.claim(conn, runtime.clock, execution, terms, name=workflow.name)

    with ThreadPoolExecutor(1) as threads:
        with runtime.engine.begin() as holder:
            holder.execute(text("SELECT FROM durable.workflows WHERE id = :id FOR UPDATE"), {"id": workflow.id})
            late = threads.submit(take)
            until(lambda: waited_for_longer_than_a_lease(runtime), "the claim has waited for longer than a lease")
        assert late.result(30) is not None

    with runtime.engine.connect() as conn:
        query = "SELECT lease_until - started_at FROM durable.executions WHERE id = :id"
        assert conn.execute(text(query), {"id": execution}).scalar() > 2 * LEASE


def waited_for_longer_than_a_lease(runtime):
    query = """SELECT true FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
               AND clock_timestamp() - query_start > :lease"""
    with runtime.engine.connect() as conn:
        return conn.execute(text(query), {"lease": LEASE}).scalar()


def test_only_what_could_run_now_is_under_suspicion(runtime, subscription):
    workflow = Renewal.create(subscription, wait="1h")
    execution = workflow.current_execution.id
    with runtime.engine.begin() as conn:
        conn.execute(text("UPDATE durable.executions SET crashes = 2"))

    def suspicious():
        with runtime.hot() as conn:
            return claims.is_suspicious(conn, runtime.clock, execution, Terms("a test", LEASE, suspicious=2))

    assert not suspicious(), "it is not due"
    travel(hours=2)
    assert suspicious()
    workflow.pause()
    assert not suspicious(), "it is paused"

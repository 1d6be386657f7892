"""Races, with real threads on real connections, all let loose at the same instant."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier

import pytest
from sqlalchemy import text

from durable import AlreadyOngoing, InvalidTransition, Workflow, scratch, step
from tests.conftest import Subscription
from tests.invariants import violations
from tests.scenes import claim_id, settle

ROUNDS = 200


class Renewal(Workflow[Subscription]):
    @step
    def first(self):
        pass

    @step
    def second(self):
        pass


@pytest.fixture(scope="module")
def pool():
    """Threads enough for all callers at once."""
    with ThreadPoolExecutor(max_workers=50) as threads:
        yield threads


@pytest.fixture
def at_once(runtime, pool):
    """Make calls at the same instant and return what each returned or raised."""
    runtime.engine.dispose()

    def run(*calls):
        start = Barrier(len(calls), timeout=30)

        def wait_and(call):
            start.wait()
            try:
                return call()
            except (AlreadyOngoing, InvalidTransition) as refused:
                return refused

        return [future.result() for future in [pool.submit(wait_and, call) for call in calls]]

    yield run
    with runtime.engine.connect() as conn:
        deadlocks = conn.execute(
            text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        ).scalar()
    assert deadlocks == 0


@pytest.fixture
def wide(runtime):
    """Let the pool give as many connections as there are threads."""
    pool = runtime.engine.pool
    overflow = pool._max_overflow
    pool._max_overflow = 60
    yield
    pool._max_overflow = overflow


def late(runtime, round_trips, call):
    """Make a call after some round trips to the server, so that over the rounds each side comes first."""
    with runtime.hot() as conn:
        for _ in range(round_trips):
            conn.execute("SELECT 1")
    return call()


def kinds(results):
    """Count what came back, by kind."""
    return Counter(type(result).__name__ for result in results)


def test_of_fifty_callers_creating_for_one_hero_one_succeeds(wide, at_once, subscription):
    results = at_once(*[lambda: Renewal.create(subscription)] * 50)

    assert kinds(results) == {"Renewal": 1, "AlreadyOngoing": 49}
    created = next(result for result in results if isinstance(result, Renewal))
    assert {result.workflow_id for result in results if isinstance(result, AlreadyOngoing)} == {created.id}
    assert Renewal.count() == 1


def test_of_fifty_workers_claiming_one_execution_one_gets_it(wide, runtime, at_once, subscription):
    execution = Renewal.create(subscription).current_execution

    claims = at_once(*[lambda: claim_id(runtime, Renewal.options.name, execution.id)] * 50)

    assert kinds(claims) == {"Claim": 1, "NoneType": 49}


def test_of_two_callers_resuming_one_succeeds(runtime, at_once, subscription):
    workflow = Renewal.create(subscription).pause()
    for _ in range(ROUNDS):
        results = at_once(workflow.resume, Renewal.get(workflow.id).resume)

        assert kinds(results) == {"Renewal": 1, "InvalidTransition": 1}
        assert not violations(runtime.engine)
        workflow = Renewal.get(workflow.id).pause()


def test_pause_against_a_settle_is_never_lost(runtime, at_once, new_subscription):
    hero = new_subscription()
    seen = Counter()
    for number in range(ROUNDS):
        workflow = Renewal.create(hero)
        held = claim_id(runtime, workflow.name, workflow.current_execution.id)

        paused, settled = at_once(
            partial(Renewal.get(workflow.id).pause, "hold"),
            partial(late, runtime, number % 8, partial(settle, runtime, Renewal, held)),
        )

        workflow.refresh()
        assert isinstance(paused, Renewal)
        assert (workflow.state, workflow.reason, workflow.next_step) == ("paused", "hold", "second")
        assert [(e.step, e.state) for e in workflow.history] == [("first", "completed"), ("second", "scheduled")]
        seen[str(settled)] += 1
        workflow.cancel()
    assert not violations(runtime.engine)
    assert set(seen) == {"ready", "paused"}


def test_cancel_against_a_claim_is_never_lost(runtime, at_once, new_subscription):
    hero = new_subscription()
    seen = Counter()
    for number in range(ROUNDS):
        workflow = Renewal.create(hero)
        execution = workflow.current_execution

        canceled, held = at_once(
            partial(Renewal.get(workflow.id).cancel, "enough"),
            partial(late, runtime, number % 8, partial(claim_id, runtime, workflow.name, execution.id)),
        )

        assert isinstance(canceled, Renewal)
        assert not violations(runtime.engine)
        if held is not None:
            assert settle(runtime, Renewal, held) == "canceled"
        assert (workflow.refresh().state, workflow.reason) == ("canceled", "enough")
        assert [e.state for e in workflow.history] == ["completed" if held else "canceled"]
        seen["claimed" if held else "canceled"] += 1
    assert set(seen) == {"claimed", "canceled"}


def test_skip_against_a_claim_leaves_the_step_skipped_or_run_never_both(runtime, at_once, new_subscription):
    hero = new_subscription()
    seen = Counter()
    for number in range(ROUNDS):
        workflow = Renewal.create(hero)
        execution = workflow.current_execution

        skipped, held = at_once(
            Renewal.get(workflow.id).skip,
            partial(late, runtime, number % 8, partial(claim_id, runtime, workflow.name, execution.id)),
        )

        assert (held is None) == isinstance(skipped, Renewal)
        assert not violations(runtime.engine)
        if held is not None:
            assert isinstance(skipped, InvalidTransition)
            settle(runtime, Renewal, held)
        history = [(e.step, e.state) for e in workflow.refresh().history]
        assert history == [("first", "completed" if held else "skipped"), ("second", "scheduled")]
        seen["claimed" if held else "skipped"] += 1
        workflow.cancel()
    assert set(seen) == {"claimed", "skipped"}


def test_a_claim_that_waits_for_a_verb_sees_what_the_verb_did(runtime, pool, session, subscription):
    """The two are forced to meet on the row lock: the claim waits until the canceling transaction commits."""
    workflow = Renewal.create(subscription)
    execution = workflow.current_execution
    Renewal.get(workflow.id, session=session).cancel()

    claiming = pool.submit(claim_id, runtime, Renewal.options.name, execution.id)
    until_a_lock_is_waited_for(runtime)
    session.commit()

    assert claiming.result(timeout=30) is None
    assert Renewal.get(workflow.id).state == "canceled"


def test_a_settle_that_waits_for_a_pause_stops_before_the_next_step(runtime, pool, session, subscription):
    workflow = Renewal.create(subscription)
    held = claim_id(runtime, workflow.name, workflow.current_execution.id)
    Renewal.get(workflow.id, session=session).pause("hold")

    settling = pool.submit(settle, runtime, Renewal, held)
    until_a_lock_is_waited_for(runtime)
    session.commit()

    assert settling.result(timeout=30) == "paused"
    assert workflow.refresh().next_step == "second"


def test_a_create_that_waits_for_anothers_rollback_gets_the_slot(runtime, pool, session, subscription):
    Renewal.create(subscription, session=session)

    creating = pool.submit(Renewal.create, subscription)
    until_a_lock_is_waited_for(runtime)
    session.rollback()

    assert creating.result(timeout=30).state == "ready"
    assert Renewal.count() == 1


def test_batches_created_in_opposite_orders_do_not_deadlock(runtime, at_once, new_subscription):
    heroes = [new_subscription() for _ in range(40)]
    for _ in range(20):
        results = at_once(
            lambda: Renewal.create_many(heroes),
            lambda: Renewal.create_many(heroes[::-1]),
            lambda: Renewal.create_many(heroes[20:] + heroes[:20]),
        )
        assert sum(len(done.created) for done in results) == 40
        assert sum(len(done.skipped) for done in results) == 80
        scratch.empty(runtime.engine)


def until_a_lock_is_waited_for(runtime):
    """Wait until some session of this database waits for a lock."""
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with runtime.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        for _ in range(100_000):
            if conn.execute(waiting).scalar():
                return
    raise AssertionError("nobody waited for a lock")

"""Signs of life: a worker that gives them keeps its claims, one that gives none loses them soon, and only then."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import dramatiq
import pytest
from dramatiq.brokers.stub import StubBroker
from dramatiq.middleware import CurrentMessage
from sqlalchemy import text

from durable import Workflow, step
from durable import runtime as runtimes
from durable.broker.patient import Patient, message_of
from durable.guard import Cause
from durable.ids import new_id
from durable.pulse import Pulse
from durable.reaper import SILENCE, SURE_AFTER, Reaper, recover_lost_claims
from durable.runtime import Runtime
from durable.settings import Settings
from durable.store.rows import Letter
from durable.testing import speedrun, travel
from durable.worker import WorkerLife
from tests.conftest import Subscription
from tests.scenes import claim_id, settle
from tests.waiting import until

LOCKS = text("SELECT count(*) FROM pg_locks JOIN durable.workers ON objid = (lock_key & 4294967295)::oid")


class Renewal(Workflow[Subscription]):
    @step
    def charge(self):
        pass

    @step
    def thank(self):
        pass


@pytest.fixture
def process(runtime):
    """Begin worker processes, each with a runtime of its own on the same database."""
    begun = []

    def begin(broker_id=None):
        own = Runtime(runtime.settings, engine=runtime.engine)
        own.clock = runtime.clock
        pulse = Pulse(own, broker_id=broker_id, queues=["default"], classes=["renewal"])
        pulse.tick()
        begun.append(pulse)
        return own, pulse

    yield begin
    runtimes.use(runtime)
    for pulse in begun:
        pulse.disconnect()
    with runtime.engine.begin() as conn:
        conn.execute(text("DELETE FROM durable.workers"))


@pytest.fixture
def seconds(monkeypatch):
    """Let a reaper's own stopwatch go on."""
    passed = [100.0]
    monkeypatch.setattr("durable.reaper.time.monotonic", lambda: passed[0])

    def go(by):
        passed[0] += by

    return go


def fall_silent(runtime, pulse):
    """Let a process lose its connection, and wait until Postgres has noticed and freed its lock."""
    pulse.disconnect()
    with runtime.statement() as conn:
        until(lambda: conn.execute(LOCKS).scalar() == 0, "its lock is free")


def claimed_by(own, workflow):
    """Take a workflow's execution as that process would."""
    return claim_id(own, workflow.name, workflow.current_execution.id, early=True, worker=own.worker)


def known(runtime):
    with runtime.engine.connect() as conn:
        return {row.id for row in conn.execute(text("SELECT id FROM durable.workers"))}


def go_silent(reaper, seconds):
    """Let as much time pass as makes a reaper sure of a silent worker."""
    travel(seconds=SILENCE.total_seconds() + 1)
    reaper.bury_the_dead()
    seconds(SURE_AFTER)
    travel(seconds=1)


def test_a_worker_that_died_loses_its_claims_long_before_their_leases_end(runtime, process, subscription, seconds):
    own, pulse = process()
    workflow = Renewal.create(subscription)
    held = claimed_by(own, workflow)
    fall_silent(runtime, pulse)
    reaper = Reaper(runtime)
    go_silent(reaper, seconds)

    assert (reaper.bury_the_dead(), recover_lost_claims(runtime), known(runtime)) == (1, 1, set())
    assert [e.outcome for e in workflow.history] == ["recovered", None]
    assert settle(runtime, Renewal, held) is None
    assert speedrun(workflow).state == "finished"


def test_a_worker_whose_messages_cannot_be_returned_is_not_forgotten_and_keeps_no_reaper_from_its_work(
    runtime, process, subscription, seconds
):
    own, pulse = process(broker_id="somebody")
    workflow = Renewal.create(subscription)
    claimed_by(own, workflow)
    fall_silent(runtime, pulse)
    settings = Settings(database_url=runtime.settings.database_url, redis_url="redis://127.0.0.1:9")
    without_redis = Runtime(settings, engine=runtime.engine)
    without_redis.clock = runtime.clock
    reaper = Reaper(without_redis)
    go_silent(reaper, seconds)
    travel(seconds=15)

    reaper.tick()

    assert known(runtime) == {own.worker}
    assert [e.outcome for e in workflow.history] == ["recovered", None]


def test_a_worker_that_is_silent_but_holds_its_lock_keeps_its_claims_until_their_leases_end(
    runtime, process, subscription, seconds
):
    own, _ = process()
    workflow = Renewal.create(subscription)
    claimed_by(own, workflow)
    reaper = Reaper(runtime)
    go_silent(reaper, seconds)

    assert (reaper.bury_the_dead(), recover_lost_claims(runtime)) == (0, 0)
    travel(seconds=15)
    assert (reaper.bury_the_dead(), recover_lost_claims(runtime)) == (0, 1)


def test_a_worker_that_has_been_silent_for_very_long_is_dead_though_its_lock_is_held(runtime, process, seconds):
    process()
    reaper = Reaper(runtime)
    travel(minutes=2)
    reaper.bury_the_dead()
    seconds(SURE_AFTER)

    assert (reaper.bury_the_dead(), known(runtime)) == (1, set())


def test_a_dead_worker_is_buried_though_a_transaction_of_its_own_still_holds_a_claim(
    runtime, process, subscription, seconds
):
    own, pulse = process()
    workflow = Renewal.create(subscription)
    held = claimed_by(own, workflow)
    fall_silent(runtime, pulse)
    reaper = Reaper(runtime)
    go_silent(reaper, seconds)

    with runtime.engine.begin() as lingering:
        row = "SELECT FROM durable.executions WHERE id = :id FOR UPDATE"
        lingering.execute(text(row), {"id": held.execution_id})
        assert (reaper.bury_the_dead(), known(runtime)) == (1, set())
    assert recover_lost_claims(runtime) == 0
    travel(seconds=15)
    assert recover_lost_claims(runtime) == 1


def test_a_worker_whose_connection_broke_and_came_back_is_not_taken_for_dead(runtime, process, seconds):
    own, pulse = process()
    fall_silent(runtime, pulse)
    reaper = Reaper(runtime)
    go_silent(reaper, seconds)
    pulse.tick()

    assert (reaper.bury_the_dead(), known(runtime)) == (0, {own.worker})


def test_a_reaper_that_sees_a_silent_worker_for_the_first_time_waits(runtime, process, seconds):
    _, pulse = process()
    fall_silent(runtime, pulse)
    travel(seconds=30)
    reaper = Reaper(runtime)

    assert reaper.bury_the_dead() == 0
    seconds(SURE_AFTER / 2)
    assert reaper.bury_the_dead() == 0
    seconds(SURE_AFTER)
    assert reaper.bury_the_dead() == 1


def test_of_three_reapers_one_takes_a_worker_for_dead(runtime, process, subscription, seconds):
    own, pulse = process()
    workflow = Renewal.create(subscription)
    claimed_by(own, workflow)
    fall_silent(runtime, pulse)
    reapers = [Reaper(runtime) for _ in range(3)]
    for reaper in reapers:
        reaper.bury_the_dead()
    travel(seconds=SILENCE.total_seconds() + 1)
    for reaper in reapers:
        reaper.bury_the_dead()
    seconds(SURE_AFTER)

    assert [reaper.bury_the_dead() for reaper in reapers] == [1, 0, 0]
    assert [recover_lost_claims(runtime) for _ in range(3)] == [1, 0, 0]


def test_a_worker_that_was_taken_for_dead_goes_on_under_a_new_name_and_stops_what_it_held(
    runtime, process, subscription, seconds
):
    own, pulse = process()
    before = own.worker
    workflow = Renewal.create(subscription)
    held = claimed_by(own, workflow)
    with own.guard.holding(held.token) as watch:
        travel(minutes=2)
        reaper = Reaper(runtime)
        reaper.bury_the_dead()
        seconds(SURE_AFTER)
        assert reaper.bury_the_dead() == 1
        pulse.tick()

        assert watch.cause is Cause.LOST
    assert own.worker != before
    assert known(runtime) == {own.worker}


def test_a_beat_extends_the_leases_that_will_run_out_and_no_others(runtime, process, new_subscription):
    own, pulse = process()
    older, newer = Renewal.create(new_subscription()), Renewal.create(new_subscription())
    one = claimed_by(own, older)
    travel(seconds=10)
    two = claimed_by(own, newer)
    with runtime.engine.connect() as conn:
        leases = text("SELECT id, lease_until FROM durable.executions")
        before = {row.id: row.lease_until for row in conn.execute(leases)}
    with own.guard.holding(one.token), own.guard.holding(two.token):
        pulse.tick()

    with runtime.engine.connect() as conn:
        after = {row.id: row.lease_until for row in conn.execute(leases)}
    assert after[one.execution_id] > before[one.execution_id]
    assert after[two.execution_id] == before[two.execution_id]


def test_a_claim_that_nobody_in_the_process_works_on_is_not_kept_alive(runtime, process, subscription):
    own, pulse = process()
    workflow = Renewal.create(subscription)
    claimed_by(own, workflow)  # and its answer was lost
    travel(seconds=16)
    pulse.tick()

    assert recover_lost_claims(runtime) == 1


@pytest.mark.parametrize(("verb", "cause"), [("cancel", Cause.CANCEL), ("pause", None)])
def test_a_beat_learns_that_a_running_workflow_is_to_be_canceled(runtime, process, subscription, verb, cause):
    own, pulse = process()
    workflow = Renewal.create(subscription)
    held = claimed_by(own, workflow)
    getattr(workflow, verb)("as asked")
    with own.guard.holding(held.token) as watch:
        pulse.tick()

        assert (watch.cause, watch.reason) == (cause, "as asked" if cause else None)


def test_a_worker_that_ends_in_good_order_leaves_no_row(runtime, process):
    _, pulse = process()
    pulse.leave()

    assert known(runtime) == set()


class Unreachable(Patient, StubBroker):
    """A broker that does not answer when a worker ends, and does later."""

    def __init__(self, *errors):
        super().__init__()
        self.errors = list(errors)

    def revive(self, broker_id, queues):
        if self.errors:
            raise self.errors.pop()


@pytest.mark.parametrize("errors", [[], [ConnectionError("away")]])
def test_a_worker_that_cannot_return_its_messages_is_left_for_a_reaper_to_bury(runtime, process, errors):
    alone = runtime.settings.model_copy(update={"relay_in_workers": False, "reaper_in_workers": False})
    own = runtimes.use(Runtime(alone, engine=runtime.engine))
    broker, life = Unreachable(*errors), WorkerLife()
    worker = SimpleNamespace(worker_threads=1, consumer_whitelist=None)
    life.before_worker_boot(broker, worker)
    until(lambda: known(runtime), "it is known")

    life.after_worker_shutdown(broker, worker)

    assert known(runtime) == ({own.worker} if errors else set())
    with runtime.statement() as conn:
        until(lambda: conn.execute(LOCKS).scalar() == 0, "its lock is free")


def test_after_an_outage_a_pulse_is_back_before_a_reaper_can_be_sure_of_its_death(process, caplog):
    own, pulse = process()
    pulse.disconnect()

    @contextmanager
    def refuse():
        raise ConnectionError("away")
        yield

    own._engine = SimpleNamespace(connect=refuse)
    loop = pulse.loop()
    loop.start()
    until(lambda: len(caplog.records) == 4, "it has failed four times")
    loop.stop()

    pauses = [float(record.message.split(" in ")[1].split(" s:")[0]) for record in caplog.records]
    assert max(pauses) <= SURE_AFTER / 2


def test_a_message_for_an_unknown_class_is_no_dead_letter_though_the_database_is_away(caplog):
    def put_back(execution_id):
        raise ConnectionError("away")

    broker = Unreachable()
    broker.put_back = put_back
    broker.add_middleware(CurrentMessage())
    broker.declare_queue("default")
    broker.emit_after("process_boot")
    worker = dramatiq.Worker(broker, worker_threads=1, worker_timeout=50)
    worker.start()
    broker.enqueue(message_of(Letter(new_id(), "unknown", "default")))
    broker.join("default", fail_fast=False)
    worker.stop()

    assert broker.dead_letters == []
    assert "could not be put back; its message will be sent again: away" in caplog.text


def test_a_worker_is_known_by_where_it_is_and_what_it_has(runtime, process):
    own, _ = process()
    with runtime.engine.connect() as conn:
        row = conn.execute(text("SELECT id, pid, queues, classes FROM durable.workers")).one()

    assert (row.id, row.queues, row.classes) == (own.worker, ["default"], ["renewal"])

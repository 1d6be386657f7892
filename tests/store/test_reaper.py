"""The reaper: what a lost worker held is recovered once, and a step that kills its workers is stopped."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from durable import Workflow, reaper, step
from durable import runtime as runtimes
from durable.executor import perform
from durable.isolation import Isolation
from durable.reaper import recover_lost_claims
from durable.runtime import Runtime
from durable.testing import perform_next_step, speedrun, travel
from tests.conftest import Subscription
from tests.scenes import claim, settle


class Renewal(Workflow[Subscription]):
    @step(on_exception="reattempt")
    def charge(self):
        if self.hero.note == "raise":
            raise ValueError

    @step
    def thank(self):
        pass


def lose(runtime, workflow):
    """Let a worker claim the next step and never be heard of again."""
    held = claim(runtime, workflow)
    travel(minutes=1)
    return held


def with_settings(runtime, **settings):
    """Use other settings on the same database."""
    made = Runtime(runtime.settings.model_copy(update=settings), engine=runtime.engine)
    made.clock = runtime.clock
    return runtimes.use(made)


def test_a_claim_that_still_holds_is_left_alone(runtime, subscription):
    workflow = Renewal.create(subscription)
    claim(runtime, workflow)

    assert recover_lost_claims(runtime) == 0
    assert workflow.refresh().state == "performing"


def test_a_lost_claim_is_recovered_once_and_the_step_runs_again(runtime, subscription):
    workflow = Renewal.create(subscription)
    held = lose(runtime, workflow)

    assert [recover_lost_claims(runtime), recover_lost_claims(runtime)] == [1, 0]
    lost, again = workflow.history
    assert (lost.state, lost.outcome, lost.worker) == ("failed", "recovered", "a test")
    assert (again.step, again.attempt, again.crashes, again.reattempts) == ("charge", 2, 1, 0)
    assert again.idempotency_key == held.idempotency_key
    assert settle(runtime, Renewal, held) is None
    assert speedrun(workflow).state == "finished"


def test_three_reapers_at_once_recover_each_claim_once(runtime, new_subscription):
    for _ in range(20):
        lose(runtime, Renewal.create(new_subscription()))

    with ThreadPoolExecutor(3) as pool:
        counts = [f.result() for f in [pool.submit(recover_lost_claims, runtime) for _ in range(3)]]

    assert sum(counts) == 20
    assert {len(workflow.history) for workflow in Renewal.list()} == {2}


def test_a_row_that_somebody_holds_is_passed_over_and_does_not_keep_the_others(runtime, new_subscription):
    held, free = (Renewal.create(new_subscription()) for _ in range(2))
    for workflow in (held, free):
        claim(runtime, workflow)
    travel(minutes=1)

    with runtime.engine.begin() as holder:
        holder.execute(text("SELECT FROM durable.workflows WHERE id = :id FOR UPDATE"), {"id": held.id})
        assert recover_lost_claims(runtime) == 1
    assert [len(workflow.history) for workflow in (held, free)] == [1, 2]

    assert recover_lost_claims(runtime) == 1
    assert [len(workflow.history) for workflow in (held, free)] == [2, 2]


def test_a_step_that_ends_its_workers_again_and_again_pauses_its_workflow(runtime, subscription):
    workflow = Renewal.create(subscription)
    for _ in range(3):
        lose(runtime, workflow)
        recover_lost_claims(runtime)

    assert (workflow.refresh().state, workflow.reason) == ("paused", "its step ended its worker 3 times in a row")
    assert [e.crashes for e in workflow.history] == [0, 1, 2]
    assert workflow.resume().current_execution.crashes == 0


def test_a_run_between_two_crashes_breaks_their_chain(runtime, session, subscription):
    session.merge(subscription).note = "raise"
    session.commit()
    workflow = Renewal.create(subscription)
    lose(runtime, workflow)
    recover_lost_claims(runtime)
    perform_next_step(workflow)

    assert [(e.crashes, e.reattempts) for e in workflow.history] == [(0, 0), (1, 0), (0, 1)]
    lose(runtime, workflow)
    recover_lost_claims(runtime)
    assert (workflow.history[-1].crashes, workflow.history[-1].reattempts) == (1, 1)


@pytest.mark.parametrize(("action", "state"), [("pause", "paused"), ("cancel", "canceled")])
def test_a_lost_worker_may_lead_elsewhere_by_setting(runtime, subscription, action, state):
    other = with_settings(runtime, on_lost_worker=action)
    workflow = Renewal.create(subscription)
    lose(other, workflow)

    recover_lost_claims(other)

    assert (workflow.refresh().state, workflow.reason) == (state, "its worker was lost")


@pytest.mark.parametrize(("verb", "state"), [("pause", "paused"), ("cancel", "canceled")])
def test_what_a_caller_asked_for_is_done_when_the_worker_is_lost(runtime, subscription, verb, state):
    workflow = Renewal.create(subscription)
    lose(runtime, workflow)
    getattr(workflow, verb)("as asked")

    recover_lost_claims(runtime)

    assert (workflow.refresh().state, workflow.reason) == (state, "as asked")


def test_a_paused_workflow_with_an_overdue_execution_is_not_touched(runtime, subscription):
    workflow = Renewal.create(subscription).pause("hold")
    travel(days=30)

    assert recover_lost_claims(runtime) == 0
    assert (workflow.refresh().state, len(workflow.history)) == ("paused", 1)


def test_one_row_that_cannot_be_recovered_does_not_stop_the_others(runtime, new_subscription, monkeypatch, caplog):
    workflows = [Renewal.create(new_subscription()) for _ in range(5)]
    for workflow in workflows:
        lose(runtime, workflow)
    real = reaper._recover

    def sometimes(runtime, lost):
        if lost.workflow_id == workflows[2].id:
            raise ValueError("broken row")
        return real(runtime, lost)

    monkeypatch.setattr(reaper, "_recover", sometimes)

    assert recover_lost_claims(runtime, limit=2) == 4
    assert "cannot be recovered" in caplog.text
    assert [w.refresh().state for w in workflows] == ["ready", "ready", "performing", "ready", "ready"]


def test_a_claim_is_not_taken_before_its_time(runtime, subscription):
    workflow = Renewal.create(subscription, wait="1h")
    assert claim(runtime, workflow, early=False) is None
    travel(minutes=59)
    assert claim(runtime, workflow, early=False) is None
    travel(minutes=2)

    assert claim(runtime, workflow, early=False) is not None
    with runtime.engine.connect() as conn:
        assert conn.execute(text("SELECT count(*) FROM durable.outbox")).scalar() == 0


def test_an_execution_that_one_more_crash_would_pause_is_claimed_only_by_who_runs_it_alone(runtime, subscription):
    workflow = Renewal.create(subscription)
    for _ in range(2):
        lose(runtime, workflow)
        recover_lost_claims(runtime)
    suspect = workflow.refresh().current_execution
    assert suspect.crashes == runtime.settings.max_crashes - 1
    entered = []
    runtime.isolation = Recorded(entered)

    assert perform(runtime, Renewal, suspect.id) == "ready"
    assert perform(runtime, Renewal, workflow.refresh().current_execution.id) == "finished"

    assert entered == ["beside others", "alone", "beside others"]


class Recorded(Isolation):
    """Isolation that notes who asked for what."""

    def __init__(self, entered: list[str]) -> None:
        super().__init__()
        self._entered = entered

    def beside_others(self):
        self._entered.append("beside others")
        return super().beside_others()

    def alone(self):
        self._entered.append("alone")
        return super().alone()

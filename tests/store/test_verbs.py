"""The verbs from outside: every verb in every state, and what each does."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from durable import (
    AlreadyOngoing,
    InvalidInput,
    InvalidTransition,
    StepNotDefined,
    Workflow,
    WorkflowNotFound,
    scratch,
    step,
)
from durable.states import WorkflowState
from durable.testing import perform_next_step, speedrun, travel
from tests.conftest import Subscription
from tests.scenes import BRING_TO, claim, settle


class Renewal(Workflow[Subscription]):
    """Three steps, of which the first fails on demand."""

    @step
    def first(self):
        self.data["resume_input"] = self.resume_input
        if self.hero.note == "fail":
            self.fail("asked to")

    @step(wait="3d")
    def second(self):
        return self.resume_input

    @step
    def third(self):
        pass


ALLOWED = {
    "pause": {"ready": "paused", "waiting": "paused", "performing": "performing"},
    "resume": {"paused": "ready", "failed": "ready"},
    "skip": {"paused": "ready", "ready": "ready", "waiting": "ready"},
    "cancel": {"ready": "canceled", "waiting": "canceled", "paused": "canceled", "performing": "performing"},
    "retry": {"failed": "ready", "canceled": "ready", "paused": "ready", "finished": "ready"},
}


def rows_of(runtime, workflow):
    """Return everything in the database about a workflow, without what changes by itself."""
    with runtime.engine.connect() as conn:
        return [
            conn.execute(
                text(f"SELECT * FROM durable.{table} WHERE {column} = :id ORDER BY 1"), {"id": workflow.id}
            ).all()
            for table, column in [("workflows", "id"), ("executions", "workflow_id"), ("audit", "workflow_id")]
        ] + [conn.execute(text("SELECT * FROM durable.outbox ORDER BY 1")).all()]


@pytest.fixture
def workflow_in(runtime, session, request):
    """Make a workflow and bring it to a state."""

    def make(state):
        hero = Subscription(note="fail" if state == "failed" else "", closed=False, count=0)
        session.add(hero)
        workflow = Renewal.create(hero)
        session.commit()
        BRING_TO[state](runtime, workflow)
        assert workflow.refresh().state == state
        return workflow

    yield make
    with runtime.engine.begin() as conn:
        conn.execute(text("DELETE FROM durable.workflows WHERE state IN ('compensating', 'rolled_back')"))


@pytest.mark.parametrize("state", list(WorkflowState))
@pytest.mark.parametrize("verb", list(ALLOWED))
def test_a_verb_is_done_where_it_is_allowed_and_else_refused_without_a_trace(runtime, workflow_in, verb, state):
    workflow = workflow_in(state)
    before = rows_of(runtime, workflow)
    becomes = ALLOWED[verb].get(state)

    if becomes is None:
        with pytest.raises(InvalidTransition) as refused:
            getattr(workflow, verb)()
        assert (refused.value.workflow_id, refused.value.verb, refused.value.state) == (workflow.id, verb, state)
        assert rows_of(runtime, workflow) == before
    else:
        getattr(workflow, verb)(by="ops", reason="because")
        assert workflow.refresh().state == becomes
        entry = workflow.audit[-1]
        assert (entry.verb, entry.by, entry.reason) == (verb, "ops", "because")


@pytest.mark.parametrize("verb", list(ALLOWED))
def test_a_verb_on_a_workflow_that_is_gone_says_so(runtime, workflow_in, verb):
    workflow = workflow_in("ready")
    scratch.empty(runtime.engine)

    with pytest.raises(WorkflowNotFound):
        getattr(workflow, verb)()


# --- pause and resume


def test_a_paused_workflow_keeps_its_scheduled_execution_and_no_message(runtime, workflow_in):
    workflow = perform_next_step(workflow_in("ready"))
    due = workflow.current_execution.scheduled_for

    workflow.pause("wait")

    kept = workflow.current_execution
    assert (kept.step, kept.state, kept.scheduled_for) == ("second", "scheduled", due)
    assert claim(runtime, workflow) is None


def test_resume_before_the_due_time_keeps_the_due_time(runtime, workflow_in):
    workflow = perform_next_step(workflow_in("ready"))
    execution = workflow.current_execution

    workflow.pause().resume()

    assert workflow.current_execution == execution
    assert claim(runtime, workflow, early=False) is None


def test_resume_of_an_overdue_execution_lets_it_run_at_once(runtime, workflow_in):
    workflow = perform_next_step(workflow_in("ready"))
    execution = workflow.current_execution
    workflow.pause()
    travel(days=4)

    workflow.resume()

    assert claim(runtime, workflow, early=False).execution_id == execution.id


class Meddled(Workflow[Subscription]):
    """Somebody pauses it while each of its steps runs."""

    @step
    def first(self):
        assert Workflow.get(self.id).pause("hold on", by="ops").state == "performing"
        return "done"

    @step
    def last(self):
        Workflow.get(self.id).pause("hold on")


def test_pause_while_a_step_runs_lets_it_end_and_stops_before_the_next(subscription):
    workflow = perform_next_step(Meddled.create(subscription))

    assert (workflow.state, workflow.reason, workflow.next_step) == ("paused", "hold on", "last")
    first, last = workflow.history
    assert (first.state, first.outcome, first.result) == ("completed", "success", "done")
    assert (last.step, last.state) == ("last", "scheduled")


def test_pause_asked_for_in_the_last_step_comes_too_late(subscription):
    workflow = perform_next_step(perform_next_step(Meddled.create(subscription)).resume())

    assert workflow.state == "finished"


def test_cancel_while_a_step_runs_records_the_step_and_nothing_follows(runtime, workflow_in):
    workflow = workflow_in("ready")
    claimed = claim(runtime, workflow)

    workflow.cancel("enough")
    assert workflow.state == "performing"
    settle(runtime, Renewal, claimed)

    assert (workflow.refresh().state, workflow.reason) == ("canceled", "enough")
    assert [(e.state, e.outcome) for e in workflow.history] == [("completed", "success")]


def test_cancel_beats_a_pause_that_was_asked_for_and_a_second_cancel_is_refused(runtime, workflow_in):
    workflow = workflow_in("ready")
    claimed = claim(runtime, workflow)
    workflow.pause("hold on")
    with pytest.raises(InvalidTransition, match="pause has been asked for"):
        workflow.pause("me too")
    workflow.cancel("enough")
    with pytest.raises(InvalidTransition, match="cancel has been asked for"):
        workflow.cancel("me too")
    with pytest.raises(InvalidTransition, match="cancel has been asked for"):
        workflow.pause("hold on")

    settle(runtime, Renewal, claimed)

    assert (workflow.refresh().state, workflow.reason) == ("canceled", "enough")


def test_resume_with_input_reaches_the_step_that_runs_next(workflow_in):
    workflow = perform_next_step(workflow_in("ready")).pause()

    speedrun(workflow.resume({"approved": True}))

    assert workflow.history[1].result == {"approved": True}


def test_the_input_of_a_resume_stays_with_the_step_until_it_is_done(subscription):
    class Flaky(Workflow[Subscription]):
        @step(on_exception="reattempt")
        def act(self):
            if self.execution.attempt == 1:
                self.pause("ask")
            if self.execution.attempt < 4:
                raise ValueError
            return self.resume_input

        @step
        def after(self):
            return self.resume_input

    workflow = speedrun(perform_next_step(Flaky.create(subscription)).resume({"yes": True}))

    assert [e.result for e in workflow.history if e.state == "completed"] == [{"yes": True}, None]


def test_a_reason_of_any_text_is_kept_readable(workflow_in):
    workflow = workflow_in("ready").pause("a\x00b \ud800", by="ops\x00")

    assert (workflow.reason, workflow.audit[0].by) == ("a\N{SYMBOL FOR NULL}b ?", "ops\N{SYMBOL FOR NULL}")


def test_then_next_is_refused_from_outside(workflow_in):
    with pytest.raises(InvalidInput, match=r"skip\(\) passes a step over"):
        workflow_in("ready").pause(then="next")


def test_skip_and_cancel_leave_their_reason_with_the_execution(workflow_in):
    workflow = workflow_in("ready").skip("not needed").cancel("enough")

    assert [e.reason for e in workflow.history] == ["not needed", "enough"]


def test_resume_of_a_failed_step_with_input_makes_a_new_execution(workflow_in, session):
    workflow = workflow_in("failed")
    workflow.resume(input=7)

    again = workflow.current_execution
    failed = workflow.history[0]
    assert (again.step, again.attempt, again.resume_input, again.reattempts) == ("first", 2, 7, 0)
    assert again.idempotency_key == failed.idempotency_key


def test_resume_at_another_step_replaces_what_was_scheduled(workflow_in):
    workflow = perform_next_step(workflow_in("ready")).pause()

    workflow.resume(at="third")

    assert [(e.step, e.state, e.outcome) for e in workflow.history] == [
        ("first", "completed", "success"),
        ("second", "canceled", "replaced"),
        ("third", "scheduled", None),
    ]


@pytest.mark.parametrize("verb", [lambda w: w.resume(at="nope"), lambda w: w.retry(from_step="nope")])
def test_a_step_that_does_not_exist_is_refused_by_name(runtime, workflow_in, verb):
    workflow = workflow_in("paused")
    before = rows_of(runtime, workflow)

    with pytest.raises(StepNotDefined, match=r"nope.*first, second, third"):
        verb(workflow)
    assert rows_of(runtime, workflow) == before


def test_resume_with_input_that_is_not_json_changes_nothing(runtime, workflow_in):
    workflow = workflow_in("paused")
    before = rows_of(runtime, workflow)

    with pytest.raises(InvalidInput):
        workflow.resume(object())
    assert rows_of(runtime, workflow) == before


# --- skip, cancel, retry


def test_skip_marks_the_scheduled_step_skipped_and_schedules_the_next_with_its_wait(workflow_in):
    workflow = workflow_in("ready").skip()

    first, second = workflow.history
    assert (first.state, first.outcome) == ("skipped", "skipped")
    assert (second.step, second.state) == ("second", "scheduled")
    assert (second.scheduled_for - first.finished_at).days == 3


def test_skip_of_a_step_that_failed_leaves_the_failure_in_the_history(workflow_in):
    workflow = workflow_in("failed")
    workflow.retry().pause()
    workflow.resume(at="first").pause()
    workflow.skip()

    assert (workflow.history[0].step, workflow.history[0].state) == ("first", "failed")
    assert workflow.next_step == "second"


def test_skip_of_the_last_step_finishes(workflow_in):
    assert workflow_in("ready").skip().skip().skip().state == "finished"


def test_cancel_takes_the_pending_execution_and_its_message_away(runtime, workflow_in):
    workflow = workflow_in("ready").cancel("enough")

    assert (workflow.state, workflow.reason) == ("canceled", "enough")
    assert [(e.state, e.outcome) for e in workflow.history] == [("canceled", "canceled")]
    with runtime.engine.connect() as conn:
        assert conn.execute(text("SELECT count(*) FROM durable.outbox")).scalar() == 0


def test_retry_runs_again_from_the_step_named_and_keeps_the_history(workflow_in):
    workflow = speedrun(workflow_in("ready"))
    workflow.retry(from_step="second")

    assert [e.step for e in speedrun(workflow).history] == ["first", "second", "third", "second", "third"]
    assert workflow.history[3].attempt == 1


def test_retry_of_a_finished_workflow_begins_at_the_first_step(workflow_in):
    workflow = speedrun(workflow_in("ready")).retry()

    assert workflow.next_step == "first"


def test_retry_of_a_canceled_workflow_begins_where_it_was_canceled(workflow_in):
    workflow = perform_next_step(workflow_in("ready")).cancel().retry()

    assert workflow.next_step == "second"


@pytest.mark.parametrize("verb", ["resume", "retry"])
def test_a_terminal_workflow_that_comes_back_needs_its_slot(runtime, session, workflow_in, verb):
    ended = workflow_in("failed")
    hero = ended.hero
    other = Renewal.create(hero)
    before = rows_of(runtime, ended)

    with pytest.raises(AlreadyOngoing) as taken:
        getattr(ended, verb)()
    assert taken.value.workflow_id == other.id
    session.rollback()
    assert rows_of(runtime, ended) == before


def test_a_refused_slot_leaves_the_callers_transaction_usable(session, workflow_in):
    ended = workflow_in("failed")
    Renewal.create(ended.hero)
    session.commit()

    joined = Renewal.get(ended.id, session=session)
    session.add(Subscription(note="mine"))
    session.flush()
    with pytest.raises(AlreadyOngoing):
        joined.retry()
    session.commit()

    assert session.query(Subscription).filter_by(note="mine").count() == 1


# --- in the caller's transaction


def test_a_verb_in_a_session_happens_when_the_session_commits(runtime, session, workflow_in):
    workflow_id = workflow_in("ready").id

    joined = Renewal.get(workflow_id, session=session)
    joined.pause("together")
    assert Renewal.get(workflow_id).state == "ready"
    session.commit()

    assert Renewal.get(workflow_id).state == "paused"


def test_a_verb_in_a_session_that_rolls_back_never_happened(session, workflow_in):
    workflow_id = workflow_in("ready").id

    Renewal.get(workflow_id, session=session).cancel()
    session.rollback()

    assert Renewal.get(workflow_id).state == "ready"


def test_a_verb_on_a_handle_whose_session_has_no_transaction_is_committed_at_once(session, workflow_in):
    workflow = workflow_in("ready")
    assert not session.in_transaction()

    workflow.pause()

    assert Renewal.get(workflow.id).state == "paused"


def test_a_waiting_workflow_waits_again_after_pause_and_resume(workflow_in):
    workflow = workflow_in("waiting").pause()

    assert workflow.resume().state == "waiting"
    workflow.cancel()

"""What the end of an execution means for its workflow, and what is written for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from durable import verdicts
from durable.failures import Failure
from durable.policies import Decision
from durable.states import ExecutionState as E
from durable.states import Outcome as O
from durable.states import WorkflowState as W
from durable.steps import Step
from durable.verdicts import Next, plan

KEY = uuid4()
MINUTE = timedelta(minutes=1)
FAILURE = Failure("shop.CardRefused", "no money\nask again", "Traceback …")


@dataclass(frozen=True)
class Standing:
    """An execution of `charge` that has seen two reattempts and one crash."""

    step: str = "charge"
    attempt: int = 5
    reattempts: int = 2
    crashes: int = 1
    idempotency_key: UUID = KEY


NEXT = Step("thank", wait=3 * MINUTE)


def planned(verdict, following=NEXT):
    return plan(verdict, Standing(), following)


def raised(action, **decided):
    return verdicts.raised(FAILURE, Decision(action, **decided))


# --- the table of flow control: what becomes of execution and workflow, and what follows


@pytest.mark.parametrize(
    ("verdict", "execution", "outcome", "workflow", "step", "follows"),
    [
        (verdicts.completed('{"paid":9}'), E.COMPLETED, O.SUCCESS, W.READY, "thank", "thank"),
        (verdicts.canceled("no card"), E.CANCELED, O.CANCELED, W.CANCELED, "charge", None),
        (verdicts.paused("look", "again"), E.CANCELED, O.PAUSED, W.PAUSED, "charge", None),
        (verdicts.paused("look", "next"), E.COMPLETED, O.PAUSED, W.PAUSED, "thank", "thank"),
        (verdicts.reattempted(MINUTE), E.COMPLETED, O.REATTEMPTED, W.READY, "charge", "charge"),
        (verdicts.skipped("prepaid"), E.SKIPPED, O.SKIPPED, W.READY, "thank", "thank"),
        (verdicts.finished('"done"'), E.COMPLETED, O.FINISHED, W.FINISHED, None, None),
        (verdicts.failed("broke"), E.FAILED, O.FAILED, W.FAILED, "charge", None),
        (verdicts.removed(), E.SKIPPED, O.REMOVED, W.READY, "thank", "thank"),
        (verdicts.hero_gone(), E.CANCELED, O.HERO_GONE, W.CANCELED, "charge", None),
        (raised("pause"), E.FAILED, O.PAUSED, W.PAUSED, "charge", None),
        (raised("cancel"), E.FAILED, O.CANCELED, W.CANCELED, "charge", None),
        (raised("reattempt"), E.FAILED, O.REATTEMPTED, W.READY, "charge", "charge"),
        (raised("skip"), E.FAILED, O.SKIPPED, W.READY, "thank", "thank"),
        (raised("fail"), E.FAILED, O.FAILED, W.FAILED, "charge", None),
    ],
)
def test_what_a_verdict_leads_to(verdict, execution, outcome, workflow, step, follows):
    made = planned(verdict)

    assert (made.execution, made.outcome, made.workflow) == (execution, outcome, workflow)
    assert made.step == step
    assert (made.next.step if made.next else None) == follows


@pytest.mark.parametrize(
    "verdict",
    [verdicts.completed(None), verdicts.skipped(None), verdicts.removed(), raised("skip")],
    ids=["completed", "skipped", "removed", "raised and skipped"],
)
def test_after_the_last_step_the_workflow_is_finished(verdict):
    made = planned(verdict, following=None)

    assert (made.workflow, made.step, made.next, made.reason) == (W.FINISHED, None, None, None)


def test_a_last_step_that_pauses_before_the_next_leaves_nothing_but_to_finish():
    made = planned(verdicts.paused("look", "next"), following=None)

    assert (made.execution, made.workflow, made.step, made.next) == (E.COMPLETED, W.PAUSED, None, None)


@pytest.mark.parametrize("following", [NEXT, None])
def test_a_step_that_runs_again_does_so_whether_it_is_the_last_or_not(following):
    assert planned(verdicts.reattempted(MINUTE), following).next.step == "charge"
    assert planned(raised("reattempt"), following).next.step == "charge"


# --- results


def test_a_result_belongs_to_the_execution_a_finish_to_the_workflow():
    completed, finished = planned(verdicts.completed('{"paid":9}')), planned(verdicts.finished('"done"'))

    assert (completed.result, completed.workflow_result) == ('{"paid":9}', None)
    assert (finished.result, finished.workflow_result) == (None, '"done"')


# --- when the next execution is due, and what it counts


def test_the_next_step_is_due_after_its_own_wait_and_starts_counting_afresh():
    fresh = Next("thank", wait=3 * MINUTE, attempt=1, reattempts=0, crashes=0, idempotency_key=None)

    assert planned(verdicts.completed(None)).next == fresh
    assert planned(verdicts.skipped(None)).next == fresh
    assert planned(verdicts.paused(None, "next")).next == fresh
    assert planned(raised("skip")).next == fresh


def test_a_step_that_asks_to_run_again_starts_its_reattempts_afresh_with_a_new_key():
    again = planned(verdicts.reattempted(MINUTE)).next

    assert again == Next("charge", wait=MINUTE, attempt=6, reattempts=0, crashes=0, idempotency_key=None)


def test_a_reattempt_after_an_exception_is_counted_and_keeps_the_key():
    again = planned(raised("reattempt", wait=MINUTE)).next

    assert again == Next("charge", wait=MINUTE, attempt=6, reattempts=3, crashes=0, idempotency_key=KEY)


def test_a_run_after_a_crash_counts_the_crash_forgets_no_reattempt_and_keeps_the_key():
    again = planned(verdicts.crashed("reattempt", crashes=1, most=3)).next

    assert again == Next("charge", wait=timedelta(), attempt=6, reattempts=2, crashes=2, idempotency_key=KEY)


def test_a_handler_that_reattempts_keeps_the_key_but_is_no_exception_reattempt():
    again = planned(verdicts.handled(FAILURE, verdicts.reattempted(MINUTE))).next

    assert again == Next("charge", wait=MINUTE, attempt=6, reattempts=0, crashes=0, idempotency_key=KEY)


# --- reasons


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (verdicts.canceled("no card"), "no card"),
        (verdicts.canceled(None), None),
        (verdicts.paused("look at it", "again"), "look at it"),
        (verdicts.paused(None, "again"), "paused by its step"),
        (verdicts.paused("", "next"), "paused by its step"),
        (verdicts.failed("broke"), "broke"),
        (verdicts.hero_gone(), "its hero is gone"),
        (verdicts.skipped("prepaid"), None),
        (verdicts.reattempted(MINUTE), None),
        (raised("pause"), "shop.CardRefused: no money"),
        (raised("cancel"), "shop.CardRefused: no money"),
        (raised("fail"), "shop.CardRefused: no money"),
        (raised("reattempt"), None),
        (raised("skip"), None),
    ],
)
def test_a_workflow_that_stops_says_why_and_one_that_goes_on_does_not(verdict, reason):
    assert planned(verdict).reason == reason


@pytest.mark.parametrize("said", ["nul \x00", "lone \ud800", "x" * 1_000_000], ids=["nul", "surrogate", "long"])
@pytest.mark.parametrize(
    "end",
    [verdicts.canceled, verdicts.failed, verdicts.skipped, lambda said: verdicts.paused(said, "again")],
    ids=["canceled", "failed", "skipped", "paused"],
)
def test_a_reason_is_fit_for_a_column_whatever_the_step_said(end, said):
    made = planned(end(said))
    kept = [text for text in (made.reason, made.ended_because) if text is not None]

    assert kept
    for text in kept:
        assert "\x00" not in text
        assert len(text.encode()) < 70_000


def test_an_execution_says_why_it_ended_unless_its_failure_does():
    assert planned(verdicts.skipped("prepaid")).ended_because == "prepaid"
    assert planned(verdicts.canceled("no card")).ended_because == "no card"
    assert planned(verdicts.completed(None)).ended_because is None
    assert planned(raised("pause")).ended_because is None
    assert planned(verdicts.failed("broke")).ended_because is None


# --- exceptions


@pytest.mark.parametrize("action", ["pause", "cancel", "reattempt", "skip", "fail"])
def test_an_exception_is_kept_whatever_it_leads_to(action):
    assert planned(raised(action)).failure is FAILURE


def test_a_step_that_says_it_failed_keeps_what_it_said():
    assert planned(verdicts.failed("broke")).failure == Failure("durable.fail", "broke", "")


@pytest.mark.parametrize(
    "flow",
    [
        verdicts.canceled("no card"),
        verdicts.paused("look", "again"),
        verdicts.paused("look", "next"),
        verdicts.reattempted(MINUTE),
        verdicts.skipped("prepaid"),
        verdicts.finished("1"),
        verdicts.failed("broke"),
    ],
    ids=lambda flow: str(flow.course),
)
def test_a_handlers_flow_control_leads_where_the_steps_would_but_the_execution_failed(flow):
    by_step, by_handler = planned(flow), planned(verdicts.handled(FAILURE, flow))

    assert (by_handler.execution, by_handler.failure) == (E.FAILED, FAILURE)
    assert (by_handler.outcome, by_handler.workflow, by_handler.step) == (
        by_step.outcome,
        by_step.workflow,
        by_step.step,
    )
    assert by_handler.reason == by_step.reason
    assert by_handler.workflow_result == by_step.workflow_result


@pytest.mark.parametrize("flow", [verdicts.canceled(None), verdicts.paused(None, "again")], ids=["cancel", "pause"])
def test_a_handler_that_gives_no_reason_leaves_the_exception_as_the_reason(flow):
    assert planned(verdicts.handled(FAILURE, flow)).reason == "shop.CardRefused: no money"


# --- crashes


def test_a_crash_leads_to_another_run():
    made = planned(verdicts.crashed("reattempt", crashes=0, most=3))

    assert (made.execution, made.outcome, made.workflow) == (E.FAILED, O.RECOVERED, W.READY)


@pytest.mark.parametrize("crashes", [2, 3])
def test_a_step_that_ends_its_worker_too_often_pauses_its_workflow(crashes):
    made = planned(verdicts.crashed("reattempt", crashes=crashes, most=3))

    assert (made.execution, made.outcome, made.workflow, made.step) == (E.FAILED, O.PAUSED, W.PAUSED, "charge")
    assert made.reason == f"its step ended its worker {crashes + 1} times in a row"
    assert made.next is None


def test_a_lost_worker_may_mean_a_pause():
    made = planned(verdicts.crashed("pause", crashes=0, most=3))

    assert (made.outcome, made.workflow, made.reason, made.next) == (O.PAUSED, W.PAUSED, "its worker was lost", None)


@pytest.mark.parametrize("crashes", [0, 5])
def test_a_lost_worker_may_mean_the_end(crashes):
    made = planned(verdicts.crashed("cancel", crashes=crashes, most=3))

    assert (made.outcome, made.workflow, made.reason) == (O.CANCELED, W.CANCELED, "its worker was lost")


def test_a_step_whose_database_went_away_runs_again_and_counts_as_a_crash():
    made = planned(verdicts.interrupted(FAILURE, crashes=1, most=3))

    assert (made.execution, made.outcome, made.workflow) == (E.FAILED, O.INTERRUPTED, W.READY)
    assert made.failure is FAILURE
    assert (made.next.crashes, made.next.reattempts, made.next.idempotency_key) == (2, 2, KEY)


def test_a_step_whose_database_keeps_going_away_pauses_its_workflow():
    made = planned(verdicts.interrupted(FAILURE, crashes=2, most=3))

    assert (made.outcome, made.workflow, made.failure) == (O.PAUSED, W.PAUSED, FAILURE)


def test_a_step_that_crashed_before_and_now_raises_has_no_crashes_in_a_row():
    standing = replace(Standing(), crashes=2)

    assert plan(raised("reattempt"), standing, NEXT).next.crashes == 0

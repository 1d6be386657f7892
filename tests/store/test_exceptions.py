"""What an exception leads to, in the database: actions, terminal actions, handlers, reports."""

from __future__ import annotations

import logging

import pytest
from tenacity import wait_fixed

from durable import ErrorReport, ExceptionPolicy, NonRetryable, Workflow, cancel_if, on_exception, step
from durable import runtime as runtimes
from durable.runtime import Runtime
from durable.testing import perform_next_step, speedrun
from tests.conftest import Subscription

ENDS = {
    # action: execution's outcome, workflow's state, next step
    "pause": ("paused", "paused", "act"),
    "cancel": ("canceled", "canceled", None),
    "skip": ("skipped", "ready", "follow"),
    "fail": ("failed", "failed", None),
}


class Declined(Exception):
    """The gateway said no."""


class Permanent(NonRetryable):
    """Nothing will mend it."""


def raising(error=None, **options):
    """Make a workflow whose first step raises."""

    class Renewal(Workflow[Subscription]):
        @step(**options)
        def act(self):
            raise error or Declined("no funds")

        @step
        def follow(self):
            pass

    return Renewal


def assert_ended(workflow, action):
    outcome, state, next_step = ENDS[action]
    ended = [execution for execution in workflow.history if execution.step == "act"][-1]
    assert (ended.state, ended.outcome) == ("failed", outcome)
    assert (workflow.state, workflow.next_step) == (state, next_step)


def test_an_exception_pauses_by_default_and_is_recorded_in_full(subscription):
    workflow = perform_next_step(raising().create(subscription))

    assert_ended(workflow, "pause")
    failed = workflow.history[0]
    assert failed.error_class == "tests.store.test_exceptions.Declined"
    assert failed.error_message == "no funds"
    assert 'raise error or Declined("no funds")' in failed.error_traceback
    assert workflow.reason == "tests.store.test_exceptions.Declined: no funds"


@pytest.mark.parametrize("action", list(ENDS))
def test_each_action_does_what_it_says(subscription, action):
    assert_ended(perform_next_step(raising(on_exception=action).create(subscription)), action)


@pytest.mark.parametrize("terminal", list(ENDS))
def test_reattempts_end_in_the_terminal_action(subscription, terminal):
    workflow = raising(on_exception="reattempt", max_reattempts=2, terminal_action=terminal).create(subscription)
    for attempt in (1, 2):
        perform_next_step(workflow)
        assert (workflow.state, workflow.next_step) == ("ready", "act")
        assert (workflow.history[-2].outcome, workflow.history[-1].reattempts) == ("reattempted", attempt)
    perform_next_step(workflow)

    assert_ended(workflow, terminal)
    acts = [execution for execution in workflow.history if execution.step == "act"]
    assert [execution.attempt for execution in acts] == [1, 2, 3]
    assert len({execution.idempotency_key for execution in acts}) == 1


@pytest.mark.parametrize("terminal", list(ENDS))
def test_what_cannot_be_mended_goes_straight_to_the_terminal_action(subscription, terminal):
    workflow = raising(Permanent("closed"), on_exception="reattempt", terminal_action=terminal).create(subscription)

    assert_ended(perform_next_step(workflow), terminal)


def test_a_reattempt_waits_as_its_policy_says(subscription):
    policy = ExceptionPolicy("reattempt", wait=wait_fixed(90))
    workflow = perform_next_step(raising(on_exception=policy).create(subscription))

    first, second = workflow.history
    assert (second.scheduled_for - first.finished_at).total_seconds() == 90


def test_a_resume_by_a_person_starts_the_count_afresh(subscription):
    workflow = speedrun(raising(on_exception="reattempt", max_reattempts=1).create(subscription))
    assert [e.reattempts for e in workflow.history] == [0, 1]

    speedrun(workflow.resume())

    assert [e.reattempts for e in workflow.history] == [0, 1, 0, 1]


def test_a_run_that_asks_for_another_breaks_the_chain_of_exceptions(subscription):
    class Poll(Workflow[Subscription]):
        @step(on_exception="reattempt", max_reattempts=1, terminal_action="fail")
        def ask(self):
            if self.execution.attempt % 2:
                raise Declined("again")
            if self.execution.attempt < 6:
                self.reattempt()

    workflow = speedrun(Poll.create(subscription))

    assert workflow.state == "finished"
    assert [e.reattempts for e in workflow.history] == [0, 1, 0, 1, 0, 1]


def test_an_exception_that_is_its_own_cause_is_for_the_policy_as_well(subscription):
    error = Declined("no funds")
    error.__cause__ = error

    assert_ended(perform_next_step(raising(error, on_exception="cancel").create(subscription)), "cancel")


def test_the_order_in_which_policies_are_asked(subscription):
    class Layered(Workflow[Subscription]):
        policies = [ExceptionPolicy("skip"), ExceptionPolicy("cancel", matching=KeyError)]

        @on_exception(Declined)
        def give_up(self, error):
            self.fail("handler")

        @step(on_exception=[ExceptionPolicy("pause", matching=ZeroDivisionError)])
        def act(self):
            raise self.data_error()

        def data_error(self):
            return {"zero": ZeroDivisionError, "declined": Declined, "key": KeyError, "value": ValueError}[self.input]()

        @step
        def follow(self):
            self.pause("reached")

    ends = {}
    for given in ("zero", "declined", "key", "value"):
        workflow = perform_next_step(Layered.create(subscription, given))
        ends[given] = workflow.history[0].outcome
        if workflow.state not in ("canceled", "failed"):
            workflow.cancel()

    assert ends == {"zero": "paused", "declined": "failed", "key": "canceled", "value": "skipped"}


@pytest.mark.parametrize("where", ["cancel_if", "skip_if"])
def test_an_exception_in_a_condition_is_the_steps(subscription, where):
    class Conditional(Workflow[Subscription]):
        if where == "cancel_if":

            @cancel_if
            def broken(self):
                raise Declined("cannot tell")

        @step(skip_if="breaks" if where == "skip_if" else None, on_exception="fail")
        def act(self):
            pass

        def breaks(self):
            raise Declined("cannot tell")

    workflow = perform_next_step(Conditional.create(subscription))

    assert (workflow.state, workflow.history[0].error_message) == ("failed", "cannot tell")


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interrupt_is_no_policys_business_and_leaves_the_claim_to_the_reaper(runtime, subscription, interrupt):
    workflow = raising(interrupt(), on_exception="fail").create(subscription)

    with pytest.raises(interrupt):
        perform_next_step(workflow)

    assert workflow.refresh().state == "performing"
    assert workflow.current_execution.state == "in_progress"


# --- handlers


def handling(handle, **options):
    """Make a workflow with a handler."""

    class Handled(Workflow[Subscription]):
        @on_exception(Declined, **options)
        def decide(self, error):
            return handle(self, error)

        @step
        def act(self):
            self.hero.note = "body"
            self.data["body"] = True
            raise Declined("no funds")

        @step
        def follow(self):
            pass

    return Handled


def test_a_handler_decides_by_flow_control_and_its_writes_are_kept(subscription, reload):
    def back_off(self, error):
        assert self.hero.note == ""
        self.hero.note = f"handled {error}"
        self.data["handler"] = True
        self.reattempt(wait="5m")

    workflow = perform_next_step(handling(back_off).create(subscription))

    first, second = workflow.history
    assert (first.state, first.outcome, first.error_message) == ("failed", "reattempted", "no funds")
    assert (second.scheduled_for - first.finished_at).total_seconds() == 300
    assert second.idempotency_key == first.idempotency_key
    assert reload(subscription).note == "handled no funds"
    assert workflow.data == {"handler": True}


@pytest.mark.parametrize(
    ("flow", "state"),
    [
        (lambda self: self.cancel("x"), "canceled"),
        (lambda self: self.pause("x"), "paused"),
        (lambda self: self.skip(), "ready"),
        (lambda self: self.finish(), "finished"),
        (lambda self: self.fail("x"), "failed"),
    ],
)
def test_a_handler_may_use_any_flow_control(subscription, flow, state):
    workflow = perform_next_step(handling(lambda self, error: flow(self)).create(subscription))

    assert workflow.state == state
    assert (workflow.history[0].state, workflow.history[0].error_message) == ("failed", "no funds")


def test_a_handler_that_does_not_decide_pauses(subscription):
    workflow = perform_next_step(handling(lambda self, error: None).create(subscription))

    assert (workflow.state, workflow.history[0].error_message) == ("paused", "no funds")


def test_a_handler_that_raises_pauses_and_both_errors_are_recorded(subscription, reload):
    def broken(self, error):
        self.hero.note = "handler"
        raise ZeroDivisionError("in the handler")

    workflow = perform_next_step(handling(broken).create(subscription))

    failed = workflow.history[0]
    assert (workflow.state, failed.error_class) == ("paused", "tests.store.test_exceptions.Declined")
    assert "no funds" in failed.error_traceback
    assert "ZeroDivisionError: in the handler" in failed.error_traceback
    assert reload(subscription).note == ""


# --- reporting


@pytest.fixture
def reports(runtime):
    """Collect what is reported."""
    collected = []
    report_to(runtime, collected.append)
    return collected


def report_to(runtime, reporter):
    settings = runtime.settings.model_copy(update={"error_reporter": reporter})
    runtimes.use(Runtime(settings, engine=runtime.engine))


@pytest.mark.parametrize(
    ("report", "counts"), [("always", [1, 2, 3]), ("never", [0, 0, 0]), ("terminal_only", [0, 0, 1])]
)
def test_a_policy_says_when_its_exceptions_are_reported(reports, subscription, report, counts):
    policy = ExceptionPolicy("reattempt", max_reattempts=2, report=report)
    workflow = raising(on_exception=policy).create(subscription)

    seen = []
    for _ in range(3):
        perform_next_step(workflow)
        seen.append(len(reports))

    assert seen == counts


def test_a_report_says_everything_an_error_tracker_wants_to_know(reports, subscription):
    workflow = perform_next_step(raising().create(subscription))

    (report,) = reports
    assert isinstance(report, ErrorReport)
    assert isinstance(report.error, Declined)
    assert (report.workflow_id, report.step, report.attempt, report.action) == (workflow.id, "act", 1, "pause")
    assert report.hero_key == str(subscription.id)


@pytest.mark.parametrize(("report", "count"), [("always", 1), ("never", 0), ("terminal_only", 0)])
def test_a_handler_says_when_its_exceptions_are_reported(reports, subscription, report, count):
    perform_next_step(handling(lambda self, error: self.reattempt(), report=report).create(subscription))

    assert len(reports) == count


def test_a_reporter_that_fails_does_not_harm_the_step(runtime, subscription, caplog):
    def broken(report):
        raise OSError("tracker is down")

    report_to(runtime, broken)
    workflow = perform_next_step(raising().create(subscription))

    assert workflow.state == "paused"
    assert "tracker is down" in caplog.text


def test_without_a_reporter_an_error_is_logged_with_its_tags(subscription, caplog):
    workflow = perform_next_step(raising().create(subscription))

    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert (record.workflow_id, record.step) == (str(workflow.id), "act")
    assert isinstance(record.exc_info[1], Declined)


# --- errors that are hard to keep


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x" * 10_000_000),
        ValueError("a\x00b"),
        ValueError("\ud800 surrogate"),
        Unprintable(),
        ExceptionGroup("several", [ValueError("one"), KeyError("two")]),
        type("Ö\u200bdd", (Exception,), {})("odd name"),
    ],
    ids=["huge", "NUL", "surrogate", "unprintable", "group", "odd name"],
)
def test_any_exception_is_kept_readable_and_pauses(subscription, error):
    workflow = perform_next_step(raising(error).create(subscription))

    failed = workflow.history[0]
    assert (workflow.state, failed.state) == ("paused", "failed")
    assert 0 < len(failed.error_traceback) <= 64_000
    assert len(failed.error_message) <= 64_000
    assert len(workflow.reason) <= 600

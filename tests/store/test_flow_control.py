"""Flow control inside a step: each row of the table, and that nothing gets in its way."""

from __future__ import annotations

import pytest

from durable import NotJson, OutsideStep, Workflow, step
from durable.errors import InsideStep
from durable.testing import perform_next_step, speedrun
from tests.conftest import Subscription


def two_steps(body):
    """Make a workflow whose first step does something to itself."""

    class Renewal(Workflow[Subscription]):
        @step
        def decide(self):
            self.hero.note = "written"
            self.data["seen"] = True
            body(self)
            self.hero.note = "went on"

        @step
        def follow(self):
            return "followed"

    return Renewal


ROWS = [
    # body, execution's state and outcome, workflow's state, reason, next step
    (lambda self: self.cancel("no card"), "canceled", "canceled", "canceled", "no card", None),
    (lambda self: self.pause("look"), "canceled", "paused", "paused", "look", "decide"),
    (lambda self: self.pause("look", then="next"), "completed", "paused", "paused", "look", "follow"),
    (lambda self: self.reattempt(), "completed", "reattempted", "ready", None, "decide"),
    (lambda self: self.skip("no need"), "skipped", "skipped", "ready", None, "follow"),
    (lambda self: self.finish({"paid": 9}), "completed", "finished", "finished", None, None),
    (lambda self: self.fail("cannot"), "failed", "failed", "failed", "cannot", None),
]
REASONS = {"canceled": "no card", "paused": "look", "skipped": "no need"}
NAMES = ["cancel", "pause", "pause then next", "reattempt", "skip", "finish", "fail"]


@pytest.mark.parametrize(("body", "state", "outcome", "workflow_state", "reason", "next_step"), ROWS, ids=NAMES)
def test_flow_control_ends_the_step_at_once_and_keeps_what_it_wrote(
    subscription, reload, body, state, outcome, workflow_state, reason, next_step
):
    workflow = perform_next_step(two_steps(body).create(subscription))

    ended = workflow.history[0]
    assert (ended.step, ended.state, ended.outcome) == ("decide", state, outcome)
    assert ended.reason == REASONS.get(outcome)
    assert (workflow.state, workflow.reason, workflow.next_step) == (workflow_state, reason, next_step)
    assert workflow.data == {"seen": True}
    assert reload(subscription).note == "written"


@pytest.mark.parametrize("body", [row[0] for row in ROWS], ids=NAMES)
def test_a_step_that_catches_every_exception_does_not_catch_flow_control(subscription, body):
    def careless(self):
        try:
            body(self)
        except Exception:
            raise AssertionError("caught") from None

    workflow = perform_next_step(two_steps(careless).create(subscription))

    assert workflow.history[0].error_class in (None, "durable.fail")


def test_flow_control_that_a_bare_except_swallows_is_honoured_all_the_same(subscription, caplog):
    def greedy(self):
        try:
            self.cancel("no card")
        except BaseException:
            return

    workflow = perform_next_step(two_steps(greedy).create(subscription))

    assert (workflow.state, workflow.reason) == ("canceled", "no card")
    assert "caught its own flow control" in caplog.text


def test_resume_after_pause_runs_the_same_step_again(subscription):
    calls = []

    def once(self):
        calls.append(self.execution.attempt)
        if len(calls) == 1:
            self.pause("look")

    workflow = perform_next_step(two_steps(once).create(subscription))
    speedrun(workflow.resume())

    assert calls == [1, 2]
    assert [e.step for e in workflow.history] == ["decide", "decide", "follow"]
    assert workflow.state == "finished"


def test_resume_after_pause_then_next_goes_on_with_the_next_step(subscription):
    workflow = perform_next_step(two_steps(lambda self: self.pause("look", then="next")).create(subscription))
    speedrun(workflow.resume())

    assert [(e.step, e.state) for e in workflow.history] == [("decide", "completed"), ("follow", "completed")]


def test_pause_then_next_in_the_last_step_leaves_only_the_end_to_resume(subscription):
    class Review(Workflow[Subscription]):
        @step
        def check(self):
            self.pause("look", then="next")

    workflow = perform_next_step(Review.create(subscription))
    assert (workflow.state, workflow.next_step) == ("paused", None)

    assert workflow.resume().state == "finished"


def test_pausing_with_a_then_that_means_nothing_is_the_steps_exception(subscription):
    workflow = perform_next_step(two_steps(lambda self: self.pause(then="later")).create(subscription))

    assert workflow.history[0].error_message == "then='later' must be 'again' or 'next'"


def test_reattempt_waits_and_begins_with_a_new_idempotency_key(subscription):
    workflow = perform_next_step(two_steps(lambda self: self.reattempt(wait="1h")).create(subscription))

    first, second = workflow.history
    assert (second.step, second.state, second.attempt) == ("decide", "scheduled", 2)
    assert 3500 < (second.scheduled_for - first.finished_at).total_seconds() < 3700
    assert second.idempotency_key != first.idempotency_key


def test_finish_keeps_the_result_of_the_workflow(subscription):
    workflow = perform_next_step(two_steps(lambda self: self.finish({"paid": 9})).create(subscription))

    assert workflow.result == {"paid": 9}


def test_finish_with_something_that_is_not_json_is_the_steps_exception(subscription):
    workflow = perform_next_step(two_steps(lambda self: self.finish(object())).create(subscription))

    assert workflow.state == "paused"
    assert workflow.history[0].error_class == f"{NotJson.__module__}.NotJson"


@pytest.mark.parametrize(
    "use",
    [
        lambda w: w.reattempt(),
        lambda w: w.finish(),
        lambda w: w.fail("x"),
        lambda w: w.session,
        lambda w: w.execution,
        lambda w: w.results,
        lambda w: w.logger,
    ],
)
def test_what_belongs_to_a_step_is_refused_outside_of_one(subscription, use):
    workflow = two_steps(lambda self: None).create(subscription)

    with pytest.raises(OutsideStep):
        use(workflow)


@pytest.mark.parametrize("verb", ["resume", "retry"])
def test_a_step_cannot_use_a_callers_verb_on_itself(subscription, verb):
    workflow = perform_next_step(two_steps(lambda self: getattr(self, verb)()).create(subscription))

    assert workflow.history[0].error_class == f"{InsideStep.__module__}.InsideStep"


def test_nothing_set_on_self_survives_to_the_next_step(subscription):
    class Forgetful(Workflow[Subscription]):
        @step
        def remember(self):
            self.note = "gone"

        @step
        def recall(self):
            return hasattr(self, "note")

    workflow = speedrun(Forgetful.create(subscription))

    assert workflow.history[1].result is False


def test_a_later_step_sees_data_and_results_of_earlier_ones(subscription):
    class Chain(Workflow[Subscription]):
        @step
        def first(self):
            self.data["list"] = [1, 2]
            return {"n": 1}

        @step
        def second(self):
            self.data["list"].append(3)

        @step
        def third(self):
            return {"data": self.data, "results": self.results}

    workflow = speedrun(Chain.create(subscription))

    assert workflow.history[2].result == {"data": {"list": [1, 2, 3]}, "results": {"first": {"n": 1}, "second": None}}

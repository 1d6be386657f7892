"""Claim and settle, on their own: what a worker may write, and what it may not."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

from durable import Workflow, step
from durable.ids import new_id
from durable.testing import travel
from tests.conftest import Subscription
from tests.scenes import claim, claim_id, settle


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

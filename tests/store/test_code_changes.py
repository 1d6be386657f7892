"""Code that changes while rows are under way."""

from __future__ import annotations

import pytest
from pydantic import BaseModel
from sqlalchemy import text

from durable import ClassNotLoaded, InvalidTransition, Workflow, registry, removed_step, step
from durable.executor import perform
from durable.testing import perform_next_step, speedrun
from tests.conftest import Subscription


@pytest.fixture
def order(subscription):
    """A workflow that has done its first step of three, under the name "order"."""

    class Order(Workflow[Subscription], name="order"):
        @step
        def pack(self):
            pass

        @step
        def fax(self):
            pass

        @step
        def ship(self):
            pass

    workflow = perform_next_step(Order.create(subscription))
    registry.forget("order")
    yield workflow
    registry.forget("order")


def test_a_step_that_is_gone_fails_and_pauses_with_the_ways_out(order):
    class Order(Workflow[Subscription], name="order"):
        @step
        def pack(self):
            pass

        @step
        def ship(self):
            pass

    workflow = perform_next_step(Order.get(order.id))

    failed = workflow.history[1]
    assert (workflow.state, failed.error_class) == ("paused", "durable.errors.StepNotDefined")
    for way_out in ("'fax'", "pack, ship", "removed_step()", "resume(at=...)"):
        assert way_out in failed.error_message
    assert speedrun(workflow.resume(at="ship")).state == "finished"


def test_a_step_that_is_gone_can_be_skipped(order):
    class Order(Workflow[Subscription], name="order"):
        @step
        def pack(self):
            pass

        @step
        def ship(self):
            pass

    workflow = perform_next_step(Order.get(order.id)).skip()

    assert workflow.next_step == "ship"


def test_a_gravestone_lets_rows_go_on_from_where_the_step_was(order):
    class Order(Workflow[Subscription], name="order"):
        @step
        def pack(self):
            pass

        fax = removed_step()

        @step
        def ship(self):
            pass

    workflow = speedrun(Order.get(order.id))

    assert [(e.step, e.state, e.outcome) for e in workflow.history] == [
        ("pack", "completed", "success"),
        ("fax", "skipped", "removed"),
        ("ship", "completed", "success"),
    ]


def test_a_step_inserted_after_the_current_one_is_run(order):
    class Order(Workflow[Subscription], name="order"):
        @step
        def pack(self):
            pass

        @step
        def fax(self):
            pass

        @step
        def weigh(self):
            pass

        @step
        def ship(self):
            pass

    assert [e.step for e in speedrun(Order.get(order.id)).history] == ["pack", "fax", "weigh", "ship"]


def test_a_class_that_is_gone_leaves_a_row_that_can_be_read_and_canceled(order):
    workflow = Workflow.get(order.id)

    assert type(workflow) is Workflow
    assert (workflow.name, workflow.state, workflow.next_step) == ("order", "ready", "fax")
    workflow.pause().resume()
    with pytest.raises(ClassNotLoaded, match="'order' is not loaded here; import its module"):
        workflow.skip()
    assert workflow.cancel("abandoned").state == "canceled"


def test_rows_run_on_their_own_version_while_it_is_loaded(runtime, subscription, new_subscription):
    class First(Workflow[Subscription], name="versioned", version=1):
        @step
        def act(self):
            return 1

    old = First.create(subscription)

    class Second(Workflow[Subscription], name="versioned", version=2):
        @step
        def act(self):
            return 2

    new = Second.create(new_subscription())
    for workflow in (old, new):
        perform(runtime, Second, workflow.current_execution.id)

    assert [workflow.refresh().history[0].result for workflow in (old, new)] == [1, 2]
    registry.forget("versioned")


def test_rows_of_a_version_that_is_gone_run_on_the_newest(runtime, subscription):
    class First(Workflow[Subscription], name="upgraded", version=1):
        @step
        def act(self):
            return 1

    old = First.create(subscription)
    registry.forget("upgraded")

    class Third(Workflow[Subscription], name="upgraded", version=3):
        @step
        def act(self):
            return 3

    assert speedrun(Third.get(old.id)).history[0].result == 3
    assert old.refresh().version == 1
    registry.forget("upgraded")


def test_a_message_for_another_classs_actor_claims_nothing(runtime, subscription):
    class One(Workflow[Subscription]):
        @step
        def act(self):
            pass

    class Other(Workflow[Subscription]):
        @step
        def act(self):
            raise AssertionError

    workflow = One.create(subscription)

    assert perform(runtime, Other, workflow.current_execution.id) is None
    assert workflow.refresh().state == "ready"


class Size(BaseModel):
    size: int


class Sized(Workflow[Subscription]):
    input: Size

    @step
    def act(self):
        pass


def test_an_input_that_no_longer_fits_its_model_is_the_steps_exception(runtime, subscription):
    workflow = Sized.create(subscription, {"size": 1})
    with runtime.engine.begin() as conn:
        conn.execute(text("""UPDATE durable.workflows SET input = '{"size": "large"}'"""))

    assert perform_next_step(workflow).state == "paused"
    assert workflow.history[0].error_class.endswith("ValidationError")
    assert workflow.refresh().input == {"size": "large"}


def test_skip_is_refused_when_nothing_is_left(subscription):
    class Last(Workflow[Subscription]):
        @step
        def act(self):
            self.pause("done", then="next")

    workflow = perform_next_step(Last.create(subscription))

    with pytest.raises(InvalidTransition, match=r"resume\(\) finishes it"):
        workflow.skip()

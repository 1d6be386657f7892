"""Reading workflows, hooks, logs, async twins and the test helpers themselves."""

from __future__ import annotations

import asyncio
import logging
from uuid import uuid4

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from durable import AlreadyOngoing, DurableError, InvalidInput, Workflow, WorkflowNotFound, cancel_if, step, tables
from durable.testing import (
    assert_step_executed,
    assert_workflow_state,
    perform_next_step,
    perform_step_inline,
    reset_clock,
    speedrun,
    travel,
)
from tests.conftest import Subscription


class Renewal(Workflow[Subscription]):
    @step
    def remind(self):
        return "sent"

    @step(wait="3d")
    def charge(self):
        pass


class Other(Workflow[Subscription]):
    @step
    def act(self):
        pass


# --- reading


def test_a_workflow_is_found_by_its_id_in_any_form(subscription):
    workflow = Renewal.create(subscription)

    for found in (Renewal.get(workflow.id), Renewal.get(str(workflow.id)), Workflow.get(workflow.id)):
        assert (type(found), found.id, found.hero.id) == (Renewal, workflow.id, subscription.id)


@pytest.mark.parametrize("id", [uuid4(), "nonsense", str(uuid4())])
def test_an_unknown_id_is_a_lookup_error(runtime, id):
    with pytest.raises(WorkflowNotFound) as missing:
        Renewal.get(id)
    assert isinstance(missing.value, LookupError)


def test_a_workflow_of_another_class_is_not_found(subscription):
    workflow = Other.create(subscription)

    with pytest.raises(WorkflowNotFound):
        Renewal.get(workflow.id)


def test_lists_are_filtered_and_turned_page_by_page(new_subscription):
    heroes = [new_subscription() for _ in range(5)]
    made = [Renewal.create(hero) for hero in heroes]
    Other.create(heroes[0])
    made[0].pause()
    made[1].cancel()

    assert [w.id for w in Renewal.list()] == [w.id for w in reversed(made)]
    assert [w.id for w in Renewal.list(state="paused")] == [made[0].id]
    assert {w.id for w in Renewal.list(state=["paused", "canceled"])} == {made[0].id, made[1].id}
    assert [type(w) for w in Workflow.list(hero=heroes[0])] == [Other, Renewal]
    first = Renewal.list(limit=2)
    second = Renewal.list(limit=2, after=first[-1])
    assert [w.id for w in [*first, *second]] == [w.id for w in reversed(made[1:])]
    assert (Renewal.count(), Workflow.count(), Renewal.count(state="ready")) == (5, 6, 3)
    assert Renewal.ongoing(heroes[0]).id == made[0].id
    assert Renewal.ongoing(heroes[1]) is None


def test_a_state_that_does_not_exist_is_refused(runtime):
    with pytest.raises(InvalidInput, match="ready, performing"):
        Renewal.list(state="sleeping")


def test_a_handle_tells_where_it_stands(subscription):
    workflow = Renewal.create(subscription)
    assert (workflow.next_step, workflow.previous_step, workflow.ended_at) == ("remind", None, None)

    perform_next_step(workflow)
    assert (workflow.next_step, workflow.previous_step) == ("charge", "remind")
    assert (workflow.current_execution.step, workflow.current_execution.state) == ("charge", "scheduled")

    speedrun(workflow)
    assert (workflow.next_step, workflow.previous_step, workflow.current_execution) == (None, "charge", None)
    assert workflow.ended_at is not None
    assert str(workflow.id) in repr(workflow)


def test_a_handle_shows_what_it_read_until_it_is_refreshed(subscription):
    workflow = Renewal.create(subscription)
    Renewal.get(workflow.id).pause()

    assert workflow.state == "ready"
    assert workflow.refresh().state == "paused"


def test_the_tables_can_be_joined(runtime, session, subscription):
    Renewal.create(subscription)
    rows = session.execute(
        select(Subscription.id, tables.workflows.c.state, tables.executions.c.step)
        .join(tables.workflows, tables.workflows.c.hero_key == Subscription.id.cast(tables.workflows.c.hero_key.type))
        .join(tables.executions, tables.executions.c.workflow_id == tables.workflows.c.id)
    ).all()

    assert [tuple(row) for row in rows] == [(subscription.id, "ready", "remind")]


# --- hooks and logs


def test_hooks_run_around_every_body_in_order(subscription):
    calls = []

    class Hooked(Workflow[Subscription]):
        def before_execution(self):
            calls.append("before")

        def after_execution(self):
            calls.append("after")

        def around_execution(self, run):
            calls.append("around")
            result = run()
            calls.append(f"body returned {result}")
            return [result]

        @step
        def act(self):
            return 1

    workflow = speedrun(Hooked.create(subscription))

    assert calls == ["before", "around", "body returned 1", "after"]
    assert workflow.history[0].result == [1]


@pytest.mark.parametrize("hook", ["before_execution", "after_execution", "around_execution"])
def test_a_hook_that_raises_is_the_steps_exception_and_one_that_cancels_cancels(subscription, hook):
    def broken(self, *run):
        raise ValueError("in the hook")

    class Broken(Workflow[Subscription]):
        locals()[hook] = broken

        @step
        def act(self):
            pass

    workflow = perform_next_step(Broken.create(subscription))
    assert (workflow.state, workflow.history[0].error_message) == ("paused", "in the hook")
    workflow.cancel()

    class Canceling(Workflow[Subscription]):
        locals()[hook] = lambda self, *run: self.cancel("by hook")

        @step
        def act(self):
            pass

    assert perform_next_step(Canceling.create(subscription)).reason == "by hook"


def test_hooks_may_be_coroutines(subscription):
    calls = []

    class Hooked(Workflow[Subscription]):
        async def before_execution(self):
            calls.append("before")

        async def around_execution(self, run):
            return [run()]

        async def after_execution(self):
            calls.append("after")

        @step
        async def act(self):
            return 1

    workflow = speedrun(Hooked.create(subscription))

    assert (calls, workflow.history[0].result) == (["before", "after"], [1])


def test_a_canceling_condition_is_asked_before_every_step(session, subscription):
    class Watched(Workflow[Subscription]):
        @cancel_if
        def closed(self):
            return self.hero.closed

        @step
        def first(self):
            self.hero.closed = True

        @step
        def second(self):
            raise AssertionError

    workflow = speedrun(Watched.create(subscription))

    assert (workflow.state, workflow.reason) == ("canceled", "cancel_if closed")


@pytest.mark.parametrize(
    ("skip_if", "skips"),
    [(lambda self: self.hero.note == "", True), ("quiet", True), (True, True), (False, False), ("loud", False)],
)
def test_skip_if_takes_a_function_a_methods_name_or_a_boolean(subscription, skip_if, skips):
    class Sometimes(Workflow[Subscription]):
        @step(skip_if=skip_if)
        def act(self):
            pass

        def quiet(self):
            return True

        async def loud(self):
            return False

    workflow = speedrun(Sometimes.create(subscription))

    assert_step_executed(workflow, "act", state="skipped" if skips else "completed")


def test_a_steps_logger_says_which_workflow_hero_execution_and_step(subscription, caplog):
    caplog.set_level(logging.INFO, logger="durable")

    class Chatty(Workflow[Subscription]):
        @step
        def act(self):
            self.logger.info("paid %d%%", 50)

    workflow = speedrun(Chatty.create(subscription))

    (record,) = [record for record in caplog.records if "paid" in record.getMessage()]
    assert (record.workflow_id, record.hero_key, record.step) == (str(workflow.id), str(subscription.id), "act")
    assert record.getMessage().endswith("paid 50%")
    assert f"execution_id={workflow.history[0].id}" in record.getMessage()


# --- async


class Awaiting(Workflow[Subscription]):
    @cancel_if
    async def closed(self):
        return self.hero.closed

    @step
    async def act(self):
        await asyncio.sleep(0)
        return "awaited"

    @step
    async def end(self):
        self.finish("early")

    @step
    def never(self):
        raise AssertionError


def test_async_steps_and_conditions_run(subscription):
    workflow = speedrun(Awaiting.create(subscription))

    assert [e.result for e in workflow.history] == ["awaited", None]
    assert (workflow.state, workflow.result) == ("finished", "early")


def test_async_steps_run_from_inside_a_running_loop_too(subscription):
    async def main():
        return speedrun(Awaiting.create(subscription))

    assert asyncio.run(main()).result == "early"


def test_a_coroutine_that_is_canceled_from_inside_is_an_exception_of_the_step(subscription):
    class Canceled(Workflow[Subscription]):
        @step
        async def act(self):
            raise asyncio.CancelledError

    assert perform_next_step(Canceled.create(subscription)).state == "paused"


def test_the_awaitable_twins_do_what_their_brothers_do(runtime, subscription, new_subscription):
    others = [new_subscription() for _ in range(3)]

    async def main():
        workflow = await Renewal.acreate(subscription, {"a": 1})
        assert (await Renewal.aget_or_create(subscription)).id == workflow.id
        with pytest.raises(AlreadyOngoing):
            await Renewal.acreate(subscription)
        assert (await workflow.apause("hold", by="me")).state == "paused"
        assert (await workflow.aresume(by="me")).state == "ready"
        assert (await workflow.askip(by="me")).next_step == "charge"
        assert (await workflow.acancel("enough")).state == "canceled"
        assert (await workflow.aretry(from_step="remind")).next_step == "remind"
        assert (await (await Renewal.aget(workflow.id)).arefresh()).state == "ready"
        assert len((await Renewal.acreate_many(others)).created) == 3
        assert len(await Renewal.alist(state="ready")) == 4

    asyncio.run(main())


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_an_async_session_commits_the_workflow_with_its_own_writes(runtime, end):
    async def main():
        engine = create_async_engine(runtime.engine.url)
        async with AsyncSession(engine, expire_on_commit=False) as session:
            hero = Subscription()
            session.add(hero)
            workflow = await Renewal.acreate(hero, session=session)
            implied = Subscription()
            session.add(implied)
            await session.flush()
            await Renewal.acreate(implied)
            several = [Subscription(), Subscription()]
            session.add_all(several)
            assert len((await Renewal.acreate_many(several)).created) == 2
            await workflow.apause("together")
            assert Renewal.count() == 0
            await getattr(session, end)()
        await engine.dispose()

    asyncio.run(main())

    assert Renewal.count() == (4 if end == "commit" else 0)
    assert Renewal.count(state="paused") == (1 if end == "commit" else 0)


def test_an_async_session_is_refused_where_nothing_is_awaited(runtime, subscription):
    with pytest.raises(ValueError, match="acreate"):
        Renewal.create(subscription, session=AsyncSession())
    with pytest.raises(ValueError, match="acreate"):
        Renewal.create_many([subscription], session=AsyncSession())


# --- the test helpers


def test_travel_moves_due_times_and_adds_up(runtime, subscription):
    workflow = perform_next_step(Renewal.create(subscription))
    due = workflow.current_execution.scheduled_for
    travel(days=1)
    travel(hours=1)

    moved = Renewal.create(subscription, unique_key="later")
    reset_clock()
    present = Renewal.create(subscription, unique_key="now")

    assert 24.9 < (moved.created_at - present.created_at).total_seconds() / 3600 < 25.1
    assert (due - present.created_at).days in (2, 3)


def test_perform_step_inline_runs_just_that_step(subscription):
    workflow = perform_step_inline(Renewal.create(subscription), "charge")

    assert [(e.step, e.state, e.outcome) for e in workflow.history] == [
        ("remind", "canceled", "replaced"),
        ("charge", "completed", "success"),
    ]


def test_speedrun_stops_a_workflow_that_loops(subscription):
    class Loop(Workflow[Subscription]):
        @step
        def again(self):
            self.reattempt(wait="1d")

    with pytest.raises(DurableError, match="still goes on after 7 steps"):
        speedrun(Loop.create(subscription), max_steps=7)


def test_speedrun_with_just_enough_steps_is_enough(subscription):
    assert speedrun(Renewal.create(subscription), max_steps=2).state == "finished"


def test_performing_what_is_not_there_says_so(subscription):
    workflow = Renewal.create(subscription).pause()

    with pytest.raises(DurableError, match="no step to perform: it is paused"):
        perform_next_step(workflow)


def test_performing_what_is_not_committed_says_so(session):
    hero = Subscription()
    session.add(hero)
    workflow = Renewal.create(hero)

    with pytest.raises(DurableError, match="commit its session first"):
        speedrun(workflow)
    session.rollback()


def test_performing_after_a_verb_that_is_not_committed_says_so(session):
    hero = Subscription()
    session.add(hero)
    workflow = Renewal.create(hero)
    session.commit()
    Renewal.get(workflow.id, session=session).pause()

    with pytest.raises(DurableError, match="commit its session first"):
        speedrun(workflow)
    session.commit()
    assert speedrun(workflow).state == "paused"


def test_a_handle_of_a_closed_session_takes_no_connection_from_it(runtime):
    with Session(runtime.engine) as closed, closed.begin():
        hero = Subscription()
        closed.add(hero)
        workflow = Renewal.create(hero)

    assert workflow.hero.id == workflow.refresh().hero.id
    assert workflow.pause().history[0].state == "scheduled"
    assert not closed.in_transaction()
    assert Renewal.get(workflow.id).state == "paused"


def test_assertions_tell_the_history_when_they_fail(subscription):
    workflow = perform_next_step(Renewal.create(subscription))

    with pytest.raises(AssertionError, match="remind completed, charge scheduled"):
        assert_step_executed(workflow, "pay")
    with pytest.raises(AssertionError, match="is scheduled, not completed"):
        assert_step_executed(workflow, "charge")
    with pytest.raises(AssertionError, match="is ready, not finished"):
        assert_workflow_state(workflow, "finished")

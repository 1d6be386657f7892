"""Creating workflows: one commit with the caller's own writes, one slot per hero, clear errors."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import create_engine, insert, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from durable import (
    AlreadyOngoing,
    DurableError,
    InvalidDuration,
    InvalidHero,
    InvalidInput,
    StepConfigurationError,
    Workflow,
    scratch,
    step,
)
from durable.testing import perform_next_step, speedrun
from tests.conftest import Subscription

TABLES = ["workflows", "executions", "outbox", "audit"]


class Renewal(Workflow[Subscription], queue="billing", priority=5):
    @step
    def remind(self):
        pass


def counts(runtime):
    """Return how many rows there are, by table, as another connection sees them."""
    with runtime.engine.connect() as conn:
        found = {table: conn.execute(text(f"SELECT count(*) FROM durable.{table}")).scalar() for table in TABLES}
        return found | {"heroes": conn.execute(text("SELECT count(*) FROM subscriptions")).scalar()}


def nothing(runtime, heroes=0):
    """Tell whether nothing was written."""
    return counts(runtime) == dict.fromkeys(TABLES, 0) | {"heroes": heroes}


# --- one commit


def test_hero_workflow_execution_and_message_appear_together(runtime, session):
    hero = Subscription()
    session.add(hero)
    workflow = Renewal.create(hero)
    assert nothing(runtime)

    session.commit()

    assert counts(runtime) == {"heroes": 1, "workflows": 1, "executions": 1, "outbox": 1, "audit": 0}
    assert Renewal.get(workflow.id).hero.id == hero.id


def test_a_transaction_that_rolls_back_leaves_no_row_in_any_table(runtime, session):
    hero = Subscription()
    session.add(hero)
    Renewal.create(hero)

    session.rollback()

    assert nothing(runtime)


def test_a_session_that_is_given_wins_over_the_heros_own(runtime, session, subscription):
    session.add(subscription)
    with Session(runtime.engine) as other:
        Renewal.create(subscription, session=other)
        session.commit()
        assert nothing(runtime, heroes=1)
        other.commit()

    assert counts(runtime)["workflows"] == 1


def test_a_hero_without_a_session_is_committed_at_once(runtime, subscription):
    Renewal.create(subscription)

    assert counts(runtime)["outbox"] == 1


def test_a_savepoint_that_rolls_back_takes_the_workflow_with_it(runtime, session):
    hero = Subscription()
    session.add(hero)
    session.flush()
    savepoint = session.begin_nested()
    Renewal.create(hero)
    savepoint.rollback()
    session.commit()

    assert nothing(runtime, heroes=1)


def test_the_row_holds_what_the_class_and_the_caller_say(subscription):
    workflow = Renewal.create(subscription, {"plan": "gold"}, priority=-1)
    read = Renewal.get(workflow.id)

    assert (read.queue, read.priority, read.version, read.state) == ("billing", -1, 1, "ready")
    assert (read.input, read.data, read.result) == ({"plan": "gold"}, {}, None)
    assert (workflow.created_at, workflow.next_step) == (read.created_at, read.next_step)


def test_wait_delays_the_first_step(subscription):
    workflow = Renewal.create(subscription, wait="2h")

    due = workflow.current_execution.scheduled_for
    assert (due - workflow.created_at).total_seconds() == 7200


def test_a_workflow_with_no_steps_is_finished_at_once(subscription):
    class Empty(Workflow[Subscription]):
        pass

    workflow = Empty.create(subscription)

    assert (workflow.state, Empty.get(workflow.id).state) == ("finished", "finished")
    assert workflow.history == []


def test_a_workflow_may_have_no_hero_and_then_no_slot(runtime):
    class Sweep(Workflow[None]):
        @step
        def sweep(self):
            return self.hero is None

    first, second = Sweep.create(None), Sweep.create(None)

    assert first.id != second.id
    assert speedrun(first).history[0].result is True


# --- the slot


def test_a_second_ongoing_workflow_for_a_hero_is_refused_with_the_firsts_id(subscription):
    first = Renewal.create(subscription)

    with pytest.raises(AlreadyOngoing) as taken:
        Renewal.create(subscription)
    assert taken.value.workflow_id == first.id


def test_a_refused_create_leaves_the_callers_transaction_usable(runtime, session, subscription):
    first = Renewal.create(subscription)
    session.add(subscription)
    subscription.note = "kept"
    with pytest.raises(AlreadyOngoing):
        Renewal.create(subscription)
    session.commit()

    with Session(runtime.engine) as fresh:
        assert fresh.get(Subscription, subscription.id).note == "kept"
    assert [w.id for w in Renewal.list()] == [first.id]


def test_get_or_create_returns_the_one_that_holds_the_slot(subscription):
    first = Renewal.get_or_create(subscription)

    assert Renewal.get_or_create(subscription).id == first.id


@pytest.mark.parametrize("free", [lambda w: w.cancel(), speedrun])
def test_a_terminal_workflow_frees_the_slot(subscription, free):
    first = Renewal.create(subscription)
    free(first)

    assert Renewal.create(subscription).id != first.id


def test_a_paused_workflow_holds_the_slot(subscription):
    Renewal.create(subscription).pause()

    with pytest.raises(AlreadyOngoing):
        Renewal.create(subscription)


def test_another_class_has_a_slot_of_its_own(subscription):
    class Reminder(Workflow[Subscription]):
        @step
        def remind(self):
            pass

    Renewal.create(subscription)

    assert Reminder.create(subscription).state == "ready"


def test_unique_none_lifts_the_rule(subscription):
    class Ping(Workflow[Subscription], unique="none"):
        @step
        def ping(self):
            pass

    assert Ping.create(subscription).id != Ping.create(subscription).id


def test_a_unique_function_or_key_replaces_the_key(subscription):
    class Daily(Workflow[Subscription], unique=lambda hero, input: f"{hero.id}:{input['day']}"):
        @step
        def run(self):
            pass

    Daily.create(subscription, {"day": "mon"})
    Daily.create(subscription, {"day": "tue"})
    with pytest.raises(AlreadyOngoing):
        Daily.create(subscription, {"day": "mon"})
    Daily.create(subscription, {"day": "mon"}, unique_key="by hand")
    with pytest.raises(AlreadyOngoing):
        Daily.create(subscription, {"day": "wed"}, unique_key="by hand")


def test_unique_in_sets_in_which_states_the_slot_is_occupied(subscription):
    class OncePerHero(Workflow[Subscription], unique_in=["ready", "performing", "finished"]):
        @step
        def welcome(self):
            pass

    first = speedrun(OncePerHero.create(subscription))
    with pytest.raises(AlreadyOngoing) as taken:
        OncePerHero.create(subscription)
    assert taken.value.workflow_id == first.id


def test_a_paused_workflow_that_left_its_slot_needs_it_to_come_back(subscription):
    class Brief(Workflow[Subscription], unique_in=["ready"]):
        @step
        def first(self):
            self.pause("look")

    left = perform_next_step(Brief.create(subscription))
    other = Brief.create(subscription)
    for verb in (left.resume, left.retry):
        with pytest.raises(AlreadyOngoing) as taken:
            verb()
        assert taken.value.workflow_id == other.id
    assert left.refresh().state == "paused"


def test_a_workflow_that_moves_by_itself_never_leaves_its_slot(subscription):
    class Odd(Workflow[Subscription], unique_in=["paused"]):
        @step
        def first(self):
            raise ValueError

    first = Odd.create(subscription)
    with pytest.raises(AlreadyOngoing):
        Odd.create(subscription)

    assert perform_next_step(first).state == "paused"


# --- many


def test_create_many_reports_what_it_created_and_whom_it_skipped(runtime, new_subscription):
    heroes = [new_subscription() for _ in range(6)]
    Renewal.create(heroes[0])

    done = Renewal.create_many([*heroes, heroes[5]], {"why": "sale"})

    assert [hero.id for hero in done.skipped] == [heroes[0].id, heroes[5].id]
    assert [Renewal.get(id).hero.id for id in done.created] == [hero.id for hero in heroes[1:]]
    assert counts(runtime)["outbox"] == 6
    assert Renewal.get(done.created[0]).input == {"why": "sale"}


def test_create_many_in_a_session_commits_with_it(runtime, session):
    heroes = [Subscription() for _ in range(3)]
    session.add_all(heroes)

    Renewal.create_many(heroes, session=session)
    assert nothing(runtime)
    session.commit()

    assert counts(runtime)["outbox"] == 3


def test_ten_thousand_workflows_are_a_handful_of_statements(runtime, session, counted):
    session.execute(insert(Subscription), [{"id": number} for number in range(10_000)])
    session.commit()
    heroes = session.scalars(select(Subscription)).all()
    session.expunge_all()
    session.rollback()

    commits, statements = counted(lambda: Renewal.create_many([*heroes, *heroes[:7]]))

    assert (Renewal.count(), statements <= 8, commits <= 8) == (10_000, True, True)


def test_create_many_joins_the_session_that_its_heroes_share(runtime, session):
    heroes = [Subscription() for _ in range(3)]
    session.add_all(heroes)

    Renewal.create_many(heroes)
    session.rollback()

    assert nothing(runtime)


def test_create_many_of_heroes_of_several_sessions_asks_which_one(runtime, session, subscription, new_subscription):
    session.add(subscription)

    with pytest.raises(InvalidHero, match="different sessions"):
        Renewal.create_many([subscription, new_subscription()])
    assert counts(runtime)["workflows"] == 0


def test_create_many_of_nothing_does_nothing(runtime):
    done = Renewal.create_many([])

    assert (done.created, done.skipped) == ([], [])


def test_workflows_made_in_batches_run_like_others(new_subscription, monkeypatch):
    monkeypatch.setattr("durable.creation.BATCH", 2)
    done = Renewal.create_many([new_subscription() for _ in range(5)])

    assert {speedrun(Renewal.get(id)).state for id in done.created} == {"finished"}


# --- input


class Card(BaseModel):
    number: str
    months: int = 12


class Payment(Workflow[Subscription]):
    input: Card

    @step
    def charge(self):
        return [type(self.input).__name__, self.input.months]


@pytest.mark.parametrize("given", [{"number": "4242"}, Card(number="4242")])
def test_a_model_named_by_the_class_is_what_steps_see(subscription, given):
    workflow = Payment.create(subscription, given)

    assert workflow.input == Card(number="4242")
    assert perform_next_step(workflow).history[0].result == ["Card", 12]


@pytest.mark.parametrize("given", [None, {"months": 3}, {"number": "4242", "months": "many"}, "4242"])
def test_input_that_does_not_fit_the_model_is_refused_and_nothing_written(runtime, subscription, given):
    with pytest.raises(InvalidInput, match="Payment"):
        Payment.create(subscription, given)
    assert nothing(runtime, heroes=1)


@pytest.mark.parametrize(
    "given", [object(), {"when": {1, 2}}, float("nan"), "a\x00b", "\ud800", {1: "x"}, "x" * 2_000_000]
)
def test_input_that_is_not_json_is_refused_and_nothing_written(runtime, subscription, given):
    with pytest.raises(InvalidInput, match=r"input of .*Renewal"):
        Renewal.create(subscription, given)
    with pytest.raises(ValueError):
        Renewal.create_many([subscription], given)
    assert nothing(runtime, heroes=1)


# --- bad heroes and options


class Foreign(DeclarativeBase):
    pass


class Gadget(Foreign):
    __tablename__ = "gadgets"
    id: Mapped[int] = mapped_column(primary_key=True)


class Anything(Workflow[Any]):
    @step
    def touch(self):
        pass


def test_a_hero_without_a_key_is_refused(runtime):
    with pytest.raises(InvalidHero, match="Subscription has no key yet: add it to a session"):
        Renewal.create(Subscription())
    assert nothing(runtime)


@pytest.mark.parametrize("hero", [object(), 42, "subscription:1", {"id": 1}, Subscription])
def test_a_hero_that_is_not_mapped_is_refused(runtime, hero):
    with pytest.raises(InvalidHero, match="mapped by SQLAlchemy"):
        Anything.create(hero)
    assert nothing(runtime)


def test_a_hero_from_another_kind_of_database_is_refused(runtime):
    engine = create_engine("sqlite://")
    Foreign.metadata.create_all(engine)
    with Session(engine) as elsewhere:
        gadget = Gadget(id=1)
        elsewhere.add(gadget)
        with pytest.raises(InvalidHero, match="sqlite database"):
            Anything.create(gadget)
    engine.dispose()
    assert nothing(runtime)


def test_a_hero_from_another_postgres_database_is_refused(runtime, durable_server, durable_template):
    with scratch.database(durable_server, "durable_elsewhere", template=durable_template) as url:
        engine = create_engine(url)
        Foreign.metadata.create_all(engine)
        with Session(engine) as elsewhere:
            gadget = Gadget(id=1)
            elsewhere.add(gadget)
            with pytest.raises(InvalidHero, match="durable_elsewhere"):
                Anything.create(gadget)
        engine.dispose()
    assert nothing(runtime)


def test_another_engine_of_the_same_database_is_welcome(runtime):
    engine = create_engine(runtime.engine.url)
    with Session(engine) as session, session.begin():
        hero = Subscription()
        session.add(hero)
        Renewal.create(hero)
    engine.dispose()

    assert counts(runtime)["workflows"] == 1


@pytest.mark.parametrize("wait", ["3x", -1, "-3s", float("inf"), True, object()])
def test_a_bad_wait_is_refused_and_nothing_written(runtime, subscription, wait):
    with pytest.raises(InvalidDuration):
        Renewal.create(subscription, wait=wait)
    assert nothing(runtime, heroes=1)


@pytest.mark.parametrize("key", ["", "x" * 1001, "a\x00b", 7])
def test_a_bad_unique_key_is_refused(runtime, subscription, key):
    with pytest.raises(InvalidInput, match="unique key"):
        Renewal.create(subscription, unique_key=key)
    assert nothing(runtime, heroes=1)


@pytest.mark.parametrize("priority", ["high", 40_000, True, 1.5])
def test_a_bad_priority_is_refused(subscription, priority):
    with pytest.raises(StepConfigurationError, match="priority"):
        Renewal.create(subscription, priority=priority)


def test_calling_the_class_says_how_to_start_one(subscription):
    with pytest.raises(DurableError, match=r"Renewal\.create\(hero\)"):
        Renewal(subscription)

"""Heroes: any key, gone heroes, types that moved."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from uuid import UUID, uuid4

import pytest
from sqlalchemy import String, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.types import TypeDecorator

from durable import ClassNotLoaded, InvalidHero, Workflow, step, workflow_of
from durable.testing import perform_next_step, speedrun
from tests.conftest import Subscription


class Zoo(DeclarativeBase):
    """Heroes of all kinds."""


class ByText(Zoo):
    __tablename__ = "by_text"
    code: Mapped[str] = mapped_column(primary_key=True)


class ByUuid(Zoo):
    __tablename__ = "by_uuid"
    id: Mapped[UUID] = mapped_column(primary_key=True)


class ByDay(Zoo):
    __tablename__ = "by_day"
    day: Mapped[date] = mapped_column(primary_key=True)


class ByDecimal(Zoo):
    __tablename__ = "by_decimal"
    amount: Mapped[Decimal] = mapped_column(primary_key=True)


class ByTwo(Zoo):
    __tablename__ = "by_two"
    region: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)


class Animal(Zoo):
    __tablename__ = "animals"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "animal"}


class Cat(Animal):
    __mapper_args__ = {"polymorphic_identity": "cat"}


class Named(Zoo):
    __tablename__ = "named"
    __hero_type__ = "shop.Named"
    id: Mapped[int] = mapped_column(primary_key=True)


class Code:
    """A key type of the application's own."""

    def __init__(self, value):
        self.value = value


class CodeType(TypeDecorator):
    impl = String
    cache_ok = True

    def process_bind_param(self, value, dialect):
        return value and value.value

    def process_result_value(self, value, dialect):
        return value and Code(value)


class ByCode(Zoo):
    __tablename__ = "by_code"
    code: Mapped[Code] = mapped_column(CodeType, primary_key=True)


class Visit(Workflow):
    """A workflow for heroes of any class."""

    @step
    def look(self):
        return type(self.hero).__name__

    @step
    def leave(self):
        return self.execution.step


@pytest.fixture(scope="module")
def zoo(durable_runtime):
    Zoo.metadata.create_all(durable_runtime.engine)


def saved(session, hero):
    session.add(hero)
    session.commit()
    session.expunge(hero)
    return hero


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: ByText(code='it\'s 50% "off" — ü {now}'), 'it\'s 50% "off" — ü {now}'),
        (lambda: ByUuid(id=UUID(int=7)), str(UUID(int=7))),
        (lambda: ByDay(day=date(2026, 2, 28)), "2026-02-28"),
        (lambda: ByDecimal(amount=Decimal("12.50")), "12.50"),
        (lambda: ByTwo(region='e"u', number=42), '["e\\"u", "42"]'),
        (lambda: Cat(id=3), "3"),
        (lambda: Named(id=4), "4"),
    ],
)
def test_a_hero_of_any_key_is_found_again(zoo, runtime, session, make, key):
    hero = saved(session, make())
    workflow = Visit.create(hero)

    assert workflow.hero_reference.key == key
    assert speedrun(workflow).state == "finished"
    assert workflow.history[0].result == type(hero).__name__
    assert Visit.list(hero=hero)[0].id == workflow.id
    with Session(runtime.engine) as cleaning:
        cleaning.delete(cleaning.merge(hero))
        cleaning.commit()


@pytest.mark.parametrize("typed", [True, False], ids=["Workflow[Hero]", "Workflow"])
@pytest.mark.parametrize("make", [lambda: ByUuid(id=uuid4()), lambda: ByTwo(region="x", number=1), lambda: Cat(id=1)])
def test_a_workflow_whose_hero_is_gone_is_canceled_before_the_next_step(zoo, session, make, typed):
    hero = saved(session, make())
    base = Workflow[type(hero)] if typed else Workflow

    class Visit(base):
        @step
        def first(self):
            pass

        @step
        def second(self):
            raise AssertionError("ran without its hero")

    workflow = perform_next_step(Visit.create(hero))
    session.delete(session.merge(hero))
    session.commit()
    perform_next_step(workflow)

    assert (workflow.state, workflow.reason) == ("canceled", "its hero is gone")
    assert (workflow.history[1].state, workflow.history[1].outcome) == ("canceled", "hero_gone")


def test_a_workflow_that_may_proceed_without_its_hero_does(session, subscription):
    class Farewell(Workflow[Subscription], may_proceed_without_hero=True):
        @step
        def wave(self):
            return self.hero is None

    workflow = Farewell.create(subscription)
    session.delete(session.merge(subscription))
    session.commit()

    assert speedrun(workflow).history[0].result is True


def test_a_hero_of_a_class_not_seen_before_may_be_gone_too(zoo, session):
    class Farewell(Workflow, may_proceed_without_hero=True):
        @step
        def wave(self):
            return self.hero is None

    hero = saved(session, ByUuid(id=uuid4()))
    workflow = Farewell.create(hero)
    Farewell._hero_classes.clear()
    session.delete(session.merge(hero))
    session.commit()

    assert speedrun(workflow).history[0].result is True
    assert Farewell.hero_classes() == []


def test_a_hero_deleted_by_its_own_last_step_lets_the_workflow_finish(subscription, reload):
    class Erasure(Workflow[Subscription]):
        @step
        def erase(self):
            self.session.delete(self.hero)

    assert speedrun(Erasure.create(subscription)).state == "finished"
    assert reload(subscription) is None


def test_a_hero_whose_type_is_unknown_here_pauses_the_workflow(runtime, subscription):
    workflow = Visit.create(subscription)
    with runtime.engine.begin() as conn:
        conn.execute(text("UPDATE durable.workflows SET hero_type = 'os.system'"))

    perform_next_step(workflow)

    assert workflow.state == "paused"
    assert "'os.system' is not a mapped class here" in workflow.history[0].error_message


@pytest.mark.parametrize("typed", [True, False], ids=["Workflow[Hero]", "Workflow"])
def test_a_hero_whose_key_became_another_type_pauses_the_workflow(runtime, subscription, typed):
    class Typed(Workflow[Subscription]):
        @step
        def look(self):
            return self.hero.id

    workflow = (Typed if typed else Visit).create(subscription)
    with runtime.engine.begin() as conn:
        conn.execute(text("UPDATE durable.workflows SET hero_key = 'not a number'"))

    perform_next_step(workflow)

    assert workflow.state == "paused"
    assert "'not a number' is not one of" in workflow.history[0].error_message


def test_a_stored_name_of_the_models_own_survives_a_move(zoo, session):
    workflow = Visit.create(saved(session, Named(id=9)))

    assert workflow.hero_reference.type == "shop.Named"


def test_a_key_that_cannot_be_read_back_is_refused(zoo, runtime):
    with pytest.raises(InvalidHero, match="ByCode"):
        Visit.create(ByCode(code=Code("x")))


def test_a_heros_class_can_show_its_ongoing_workflow(subscription):
    class Renewal(Workflow[Subscription]):
        @step
        def renew(self):
            pass

    class Page(Subscription):
        renewal = workflow_of(Renewal)

    page = Page(id=subscription.id)
    assert page.renewal is None
    workflow = Renewal.create(page)
    assert page.renewal.id == workflow.id
    workflow.cancel()
    assert page.renewal is None
    assert isinstance(Page.renewal, workflow_of)


def test_a_heros_class_may_name_the_workflow_instead_of_importing_it(subscription):
    class Renewal(Workflow[Subscription], name="shop.renewal"):
        @step
        def renew(self):
            pass

    class NamedPage(Subscription):
        renewal = workflow_of("shop.renewal")
        refund = workflow_of("shop.refund")

    page = NamedPage(id=subscription.id)
    workflow = Renewal.create(page)

    assert page.renewal.id == workflow.id
    with pytest.raises(ClassNotLoaded, match=r"shop\.refund"):
        _ = page.refund

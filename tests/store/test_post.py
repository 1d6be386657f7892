"""Messages leave after the commit that they are part of, and never after a rollback."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from durable import Workflow, step
from durable.testing import perform_next_step
from tests.conftest import Subscription

QUEUE = "dramatiq:default"


class Follow(Workflow[Subscription], unique="none"):
    @step
    def note(self):
        self.hero.count += 1


class Renewal(Workflow[Subscription]):
    @step
    def charge(self):
        if self.hero.note == "fail":
            Follow.create(self.hero, session=self.session)
            raise ValueError
        Follow.create(self.hero, session=self.session)

    @step
    def thank(self):
        pass


@pytest.fixture
def sent(with_broker):
    """Return the ids of the messages that were sent until now."""

    def read():
        assert with_broker.courier.flush()
        return {key.decode() for key in with_broker.broker.client.lrange(QUEUE, 0, -1)}

    return read


def message(workflow):
    return str(workflow.current_execution.id)


def test_nothing_is_sent_before_the_session_commits(with_broker, session, sent):
    hero = Subscription()
    session.add(hero)
    workflow = Renewal.create(hero)
    assert sent() == set()
    session.commit()

    assert sent() == {message(workflow)}


def test_nothing_is_sent_after_a_rollback_and_the_session_can_go_on(with_broker, session, sent):
    session.add(hero := Subscription())
    Renewal.create(hero)
    session.rollback()
    session.add(other := Subscription())
    workflow = Renewal.create(other)
    session.commit()

    assert sent() == {message(workflow)}


def test_of_two_savepoints_only_the_one_that_was_kept_sends(with_broker, session, sent):
    session.add(hero := Subscription())
    session.flush()
    with session.begin_nested():
        kept = Follow.create(hero, session=session)
    assert sent() == set()
    with session.begin_nested() as savepoint:
        Follow.create(hero, session=session)
        savepoint.rollback()
    assert sent() == set()
    session.commit()

    assert sent() == {message(Follow.get(kept.id))}


def test_a_savepoint_inside_a_savepoint_goes_with_the_outer_one(with_broker, session, sent):
    session.add(hero := Subscription())
    session.flush()
    with session.begin_nested() as outer:
        with session.begin_nested():
            Follow.create(hero, session=session)
        outer.rollback()
    session.commit()

    assert sent() == set()


def test_many_are_sent_when_their_session_commits(with_broker, session, sent):
    heroes = [Subscription() for _ in range(50)]
    session.add_all(heroes)
    Renewal.create_many(heroes, session=session)
    assert sent() == set()
    session.commit()

    assert len(sent()) == 50


def test_a_verb_sends_after_the_commit_of_its_session(with_broker, new_subscription, sent):
    workflow = Renewal.create(new_subscription()).pause()
    with_broker.courier.flush()
    with_broker.broker.client.flushall()
    with Session(with_broker.engine) as session:
        Renewal.get(workflow.id, session=session).resume()
        assert sent() == set()
        session.commit()

    assert sent() == {message(workflow)}


def test_an_async_session_sends_too(with_broker, new_subscription, sent):
    async def create():
        engine = create_async_engine(with_broker.engine.url)
        async with AsyncSession(engine) as session, session.begin():
            workflow = await Renewal.acreate(await session.merge(hero), session=session)
            assert sent() == set()
        await engine.dispose()
        return workflow.id

    hero = new_subscription()
    created = asyncio.run(create())

    assert sent() == {message(Renewal.get(created))}


def test_what_a_step_creates_is_sent_with_the_next_step_when_it_settles(with_broker, subscription, sent):
    workflow = Renewal.create(subscription)
    before = sent()
    perform_next_step(workflow)

    follow = Follow.list()[0]
    assert sent() - before == {message(workflow), message(follow)}


def test_what_a_step_creates_before_it_raises_is_never_sent(with_broker, session, subscription, sent):
    session.merge(subscription).note = "fail"
    session.commit()
    workflow = Renewal.create(subscription)
    before = sent()
    perform_next_step(workflow)

    assert (Follow.count(), sent() - before) == (0, set())


def test_a_session_that_is_closed_without_a_word_leaves_no_message_behind(with_broker, subscription, sent):
    session = Session(with_broker.engine)
    Renewal.create(subscription, session=session)
    session.close()

    session.execute(text("SELECT 1"))
    session.commit()
    session.close()

    assert sent() == set()


def test_a_scoped_session_sends_what_it_commits_and_others_of_its_factory_know_nothing_of_it(
    with_broker, new_subscription, sent
):
    factory = sessionmaker(with_broker.engine)
    scoped = scoped_session(factory)
    workflow = Renewal.create(new_subscription(), session=scoped)
    with factory.begin() as other:
        other.add(Subscription(closed=False, note="", count=0))

    assert sent() == set()
    scoped.commit()
    scoped.remove()

    assert sent() == {message(workflow)}

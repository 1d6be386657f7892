"""A customer who asks for it is forgotten, here and elsewhere."""

from __future__ import annotations

import json
from datetime import date, timedelta

import pytest
from sqlalchemy import select

from actors.gateways import ServiceDown, analytics, crm, mailer, storage
from actors.models import Charge, Document, Export, Order, OrderLine, Subscription, User
from actors.user_erasure import UserErasure
from durable import Outcome
from durable.testing import assert_step_executed, assert_workflow_state, perform_next_step, speedrun
from tests.acceptance.conftest import due_in, told


@pytest.fixture
def erasure(shop, user, shelf):
    subscription = Subscription(user=user, price=1200, paid_until=date(2026, 1, 31))
    order = Order(user=user, email=user.email, lines=[OrderLine(sku="mug", quantity=1, price=900)])
    shop.add_all([subscription, order, Export(user=user), Document(user_id=user.id, path="passport.pdf")])
    made = UserErasure.create(user)
    shop.add(Charge(subscription_id=subscription.id, amount=1200, receipt="r", charged_at=made.created_at))
    shop.commit()
    return made


def test_a_customer_is_forgotten_and_the_workflow_finishes_without_its_hero(shop, erasure):
    speedrun(erasure)

    assert_workflow_state(erasure, "finished")
    assert erasure.hero is None
    for erased in (User, Subscription, Export, Document):
        assert shop.scalars(select(erased)).all() == []
    assert told(mailer) == ["we have forgotten you"]


def test_the_books_keep_the_orders_and_the_money_but_not_the_name(shop, erasure):
    speedrun(erasure)

    order = shop.scalars(select(Order)).one()
    assert (order.user_id, order.email, order.total) == (None, "erased", 900)
    assert shop.scalars(select(Charge.amount)).all() == [1200]
    archived = json.loads(storage.files["archive/user-1.json"])
    assert archived == {"email": "ada@example.org", "orders": [{"order": order.id, "total": 900}]}


def test_the_partners_get_a_day(user, erasure):
    email = user.email
    perform_next_step(erasure)
    perform_next_step(erasure)

    assert crm.forgotten == analytics.forgotten == {email}
    assert erasure.next_step == "erase_data"
    assert due_in(erasure) == timedelta(hours=24)


def test_a_partner_that_is_down_is_asked_until_it_answers(shop, erasure):
    analytics.will_raise(*(ServiceDown("closed") for _ in range(120)))
    perform_next_step(erasure)
    perform_next_step(erasure)

    assert erasure.next_step == "tell_partners"
    assert due_in(erasure) == timedelta(minutes=10)
    speedrun(erasure)
    assert_workflow_state(erasure, "finished")


def test_a_customer_who_is_deleted_by_somebody_else_ends_the_erasure(shop, user):
    erasure = UserErasure.create(user)
    shop.commit()
    perform_next_step(erasure)
    shop.delete(user)
    shop.commit()
    speedrun(erasure)

    assert_workflow_state(erasure, "canceled")
    assert assert_step_executed(erasure, "tell_partners", state="canceled").outcome is Outcome.HERO_GONE
    assert mailer.outbox == []

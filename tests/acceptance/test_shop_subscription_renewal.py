"""A subscription is announced, charged and renewed: once for each period."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from sqlalchemy import select

from actors.gateways import CardDeclined, ServiceDown, mailer, payments
from actors.models import Charge, Subscription
from actors.subscription_renewal import SubscriptionRenewal
from durable import AlreadyOngoing
from durable.testing import assert_step_executed, assert_workflow_state, perform_next_step, speedrun
from tests.acceptance.conftest import due_in, told


@pytest.fixture
def subscription(shop, user):
    made = Subscription(user=user, price=1200, paid_until=date(2026, 1, 31))
    shop.add(made)
    shop.commit()
    return made


@pytest.fixture
def renewal(shop, subscription):
    made = SubscriptionRenewal.create(subscription)
    shop.commit()
    return made


def test_a_renewal_charges_once_and_begins_the_next_period(shop, subscription, renewal):
    speedrun(renewal)

    assert_workflow_state(renewal, "finished")
    shop.refresh(subscription)
    assert (subscription.paid_until, subscription.status) == (date(2026, 3, 2), "active")
    charge = shop.scalars(select(Charge)).one()
    assert (charge.subscription_id, charge.amount) == (subscription.id, 1200)
    assert told(mailer) == [
        "in three days we will charge 1200 cents",
        f"paid until 2026-03-02, your receipt is {charge.receipt}",
    ]


def test_there_are_three_days_between_notice_and_charge(renewal):
    perform_next_step(renewal)

    assert renewal.next_step == "charge"
    assert due_in(renewal) == timedelta(days=3)


def test_renewals_are_billed_before_other_work(renewal):
    assert (renewal.queue, renewal.priority) == ("billing", -10)


def test_a_period_is_renewed_only_once_even_after_its_renewal_has_ended(subscription, renewal):
    with pytest.raises(AlreadyOngoing):
        SubscriptionRenewal.create(subscription)
    stale = Subscription(id=subscription.id, paid_until=subscription.paid_until)
    speedrun(renewal)

    assert SubscriptionRenewal.get_or_create(stale).id == renewal.id


def test_the_next_period_is_renewed_by_another_workflow(shop, subscription, renewal):
    speedrun(renewal)
    shop.refresh(subscription)

    following = SubscriptionRenewal.create(subscription)
    shop.commit()
    speedrun(following)

    assert len(shop.scalars(select(Charge)).all()) == 2


def test_a_closed_subscription_is_not_charged(shop, subscription, renewal):
    perform_next_step(renewal)
    subscription.status = "closed"
    shop.commit()
    speedrun(renewal)

    assert_workflow_state(renewal, "canceled")
    assert renewal.reason == "cancel_if closed"
    assert payments.ledger == []


def test_a_declined_card_suspends_the_subscription(shop, subscription, renewal):
    payments.will_raise(CardDeclined("stolen"))
    speedrun(renewal)

    assert_workflow_state(renewal, "canceled")
    assert renewal.reason == "card declined: stolen"
    assert assert_step_executed(renewal, "charge", state="failed").error_message == "stolen"
    shop.refresh(subscription)
    assert subscription.status == "past_due"
    assert told(mailer)[-1] == "your card was declined, please give us another one"
    assert shop.scalars(select(Charge)).all() == []


def test_a_canceled_renewal_leaves_its_period_to_another_one(shop, subscription, renewal):
    payments.will_raise(CardDeclined("stolen"))
    speedrun(renewal)

    again = SubscriptionRenewal.create(subscription)
    shop.commit()
    assert again.id != renewal.id


def test_a_bank_that_is_down_is_asked_again_later_and_later(shop, renewal):
    perform_next_step(renewal)
    payments.will_raise(*(ServiceDown("maintenance") for _ in range(3)))
    waits = []
    for _ in range(3):
        perform_next_step(renewal)
        waits.append(due_in(renewal).total_seconds())
    speedrun(renewal)

    assert all(least <= wait <= least + 30 for wait, least in zip(waits, [60, 120, 240], strict=True))
    assert_workflow_state(renewal, "finished")
    assert len(shop.scalars(select(Charge)).all()) == 1


def test_a_bank_that_stays_down_pauses_the_renewal(renewal):
    payments.go_down()
    speedrun(renewal)

    assert_workflow_state(renewal, "paused")
    assert len([e for e in renewal.history if e.step == "charge"]) == 6

    payments.come_back()
    speedrun(renewal.resume(by="ann"))
    assert_workflow_state(renewal, "finished")

"""The first weeks of a new customer."""

from __future__ import annotations

from datetime import timedelta

import pytest

from actors.gateways import crm, mailer
from actors.models import Order
from actors.user_onboarding import UserOnboarding
from durable.testing import assert_step_executed, assert_workflow_state, perform_next_step, speedrun, travel
from tests.acceptance.conftest import due_in, told


@pytest.fixture
def onboarding(shop, user):
    made = UserOnboarding.create(user)
    shop.commit()
    return made


def test_somebody_who_does_nothing_is_reminded_of_everything(shop, user, onboarding):
    speedrun(onboarding)

    assert_workflow_state(onboarding, "finished")
    assert told(mailer) == [
        "welcome to the shop",
        "please complete your profile",
        "please confirm this address",
        "others began with these",
        "you know your way around now",
    ]
    assert crm.calls == [user.email]
    shop.refresh(user)
    assert user.onboarded_at == assert_step_executed(onboarding, "complete").started_at


def test_it_takes_eighteen_days(onboarding):
    waits = []
    while onboarding.state == "ready":
        waits.append(due_in(onboarding).days)
        perform_next_step(onboarding)

    assert waits == [0, 1, 2, 3, 5, 7]


def test_somebody_who_does_everything_is_reminded_of_nothing(shop, user, onboarding):
    perform_next_step(onboarding)
    user.profile_complete = user.email_verified = True
    user.call_booked_at = onboarding.created_at
    shop.add(Order(user=user, email=user.email))
    shop.commit()
    speedrun(onboarding)

    for step in ("remind_of_profile", "remind_of_email", "suggest_products", "book_call"):
        assert_step_executed(onboarding, step, state="skipped")
    assert told(mailer) == ["welcome to the shop", "you know your way around now"]
    assert crm.calls == []


def test_a_closed_account_is_left_alone(shop, user, onboarding):
    perform_next_step(onboarding)
    user.closed = True
    shop.commit()
    speedrun(onboarding)

    assert_workflow_state(onboarding, "canceled")
    assert onboarding.reason == "cancel_if closed"
    assert told(mailer) == ["welcome to the shop"]


def test_somebody_who_is_onboarded_already_is_left_alone(shop, user, onboarding):
    user.onboarded_at = onboarding.created_at
    shop.commit()
    speedrun(onboarding)

    assert_workflow_state(onboarding, "canceled")
    assert onboarding.reason == "cancel_if already_onboarded"


def test_the_days_show_in_the_customers_row(shop, user, onboarding):
    perform_next_step(onboarding)
    travel(days=18)
    speedrun(onboarding)

    shop.refresh(user)
    assert user.onboarded_at - user.welcomed_at > timedelta(days=18)

"""Whoever is on trial is reminded twice, then buys or leaves."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from actors.gateways import mailer
from actors.models import Subscription
from actors.trial_conversion import TrialConversion
from durable.testing import (
    assert_step_executed,
    assert_workflow_state,
    perform_next_step,
    perform_step_inline,
    speedrun,
)
from tests.acceptance.conftest import due_in, told


@pytest.fixture
def trial(shop, user):
    made = Subscription(user=user, price=1200, paid_until=date(2026, 1, 31), status="trial")
    shop.add(made)
    shop.commit()
    return made


@pytest.fixture
def conversion(shop, trial):
    made = TrialConversion.create(trial)
    shop.commit()
    return made


def test_a_trial_that_is_not_converted_expires(shop, trial, conversion):
    speedrun(conversion)

    assert_workflow_state(conversion, "finished")
    shop.refresh(trial)
    assert trial.status == "expired"
    assert told(mailer) == ["how do you like it? your trial ends in four days", "your trial ends tomorrow"]


def test_the_trial_takes_eleven_days(conversion):
    waits = []
    while conversion.state == "ready":
        waits.append(due_in(conversion))
        perform_next_step(conversion)

    assert waits == [timedelta(days=7), timedelta(days=3), timedelta(days=1)]


@pytest.mark.parametrize("step", ["remind", "remind_again", "expire"])
def test_a_trial_that_was_converted_ends_the_reminding(shop, trial, conversion, step):
    trial.status = "active"
    shop.commit()
    perform_step_inline(conversion, step)

    assert_workflow_state(conversion, "canceled")
    assert conversion.reason == "the subscription is active"
    assert_step_executed(conversion, step, state="canceled")
    assert mailer.outbox == []
    shop.refresh(trial)
    assert trial.status == "active"

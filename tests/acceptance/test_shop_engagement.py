"""Three letters, for as long as somebody wants to hear from us."""

from __future__ import annotations

from datetime import timedelta

import pytest

from actors.engagement import Engagement
from actors.gateways import mailer
from durable import Outcome
from durable.testing import assert_step_executed, assert_workflow_state, perform_next_step, speedrun, travel
from tests.acceptance.conftest import due_in, told


@pytest.fixture
def engagement(shop, user):
    made = Engagement.create(user)
    shop.commit()
    return made


def test_three_letters_are_written(shop, user, engagement):
    speedrun(engagement)

    assert_workflow_state(engagement, "finished")
    assert told(mailer) == ["what you can do here", "what others do here", "what you have not tried yet"]
    shop.refresh(user)
    assert user.last_contacted_at == assert_step_executed(engagement, "write_in_week_4").started_at


def test_they_are_written_in_weeks_1_2_and_4(engagement):
    waits = []
    while engagement.state == "ready":
        waits.append(due_in(engagement))
        perform_next_step(engagement)

    assert waits == [timedelta(0), timedelta(weeks=1), timedelta(weeks=2)]


@pytest.mark.parametrize("wish", ["closed", "unsubscribed"])
def test_who_leaves_is_not_written_to_again(shop, user, engagement, wish):
    perform_next_step(engagement)
    setattr(user, wish, True)
    shop.commit()
    speedrun(engagement)

    assert_workflow_state(engagement, "canceled")
    assert engagement.reason == f"cancel_if {wish}"
    assert len(mailer.outbox) == 1


def test_a_customer_who_is_deleted_is_not_written_to_again(shop, user, engagement):
    perform_next_step(engagement)
    shop.delete(user)
    shop.commit()
    speedrun(engagement)

    assert_workflow_state(engagement, "canceled")
    assert engagement.history[-1].outcome is Outcome.HERO_GONE


def test_a_pause_does_not_stop_the_clock(shop, engagement):
    perform_next_step(engagement)
    due = engagement.current_execution.scheduled_for
    engagement.pause("holidays", by="ann")

    travel(weeks=3)
    engagement.resume(by="ann")

    assert_workflow_state(engagement, "ready")
    assert engagement.current_execution.scheduled_for == due
    second = speedrun(engagement).history[1]
    assert second.started_at - due > timedelta(weeks=1)

"""News reaches its URL in one of seventeen tries, or somebody hears of it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from actors.gateways import ServiceDown, mailer, web
from actors.models import Webhook
from actors.webhook_delivery import OPERATIONS, WebhookDelivery
from durable.testing import assert_step_executed, assert_workflow_state, perform_next_step, speedrun
from tests.acceptance.conftest import due_in


@pytest.fixture
def webhook(shop):
    made = Webhook(url="https://partner.example/hook", payload={"event": "order.shipped"})
    shop.add(made)
    shop.commit()
    return made


@pytest.fixture
def delivery(shop, webhook):
    made = WebhookDelivery.create(webhook)
    shop.commit()
    return made


def test_a_url_that_takes_it_at_once_is_asked_once(shop, webhook, delivery):
    speedrun(delivery)

    assert_workflow_state(delivery, "finished")
    assert delivery.result == {"delivered_in": "step_1"}
    assert web.requests == [webhook.url]
    shop.refresh(webhook)
    assert (webhook.status, webhook.delivered_at) == ("delivered", delivery.history[0].started_at)


def test_a_url_that_refuses_is_asked_again(delivery):
    web.will_answer(500, 404)
    speedrun(delivery)

    assert delivery.result == {"delivered_in": "step_3"}
    assert_step_executed(delivery, "step_1")


def test_a_url_that_does_not_answer_is_asked_again(delivery):
    web.will_raise(ServiceDown("no route"))
    speedrun(delivery)

    assert_step_executed(delivery, "step_1", state="failed")
    assert delivery.result == {"delivered_in": "step_2"}


def test_the_tries_come_less_and_less_often(delivery):
    web.will_answer(*[503] * 17)
    waits = []
    while delivery.next_step != "mark_undeliverable":
        waits.append(due_in(delivery))
        perform_next_step(delivery)

    often, patiently = [timedelta(seconds=30)] * 4, [timedelta(minutes=5)] * 6
    assert waits == [timedelta(0), *often, *patiently, *[timedelta(hours=1)] * 6]


def test_what_cannot_be_delivered_is_told_to_operations(shop, webhook, delivery):
    web.will_answer(*[503] * 17)
    speedrun(delivery)

    assert_workflow_state(delivery, "finished")
    assert len(web.requests) == 17
    shop.refresh(webhook)
    assert webhook.status == "undeliverable"
    assert [message.to for message in mailer.outbox] == [OPERATIONS]


def test_webhooks_run_after_everything_else(delivery):
    assert (delivery.queue, delivery.priority) == ("webhooks", 10)

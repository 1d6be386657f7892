"""A parcel is looked after less and less often, until it is there or nobody believes in it any more."""

from __future__ import annotations

from datetime import timedelta

import pytest

from actors.gateways import ServiceDown, carrier, mailer
from actors.models import Order, Parcel
from actors.status_polling import StatusPolling
from durable.testing import assert_step_executed, assert_workflow_state, perform_next_step, speedrun
from tests.acceptance.conftest import due_in, told


@pytest.fixture
def parcel(shop):
    order = Order(email="ada@example.org")
    shop.add(order)
    shop.flush()
    made = Parcel(order_id=order.id, tracking_number="p-1")
    shop.add(made)
    shop.commit()
    return made


@pytest.fixture
def polling(shop, parcel):
    made = StatusPolling.create(parcel)
    shop.commit()
    return made


def test_a_delivered_parcel_ends_the_polling_early(shop, parcel, polling):
    perform_next_step(polling)
    carrier.deliver("p-1")
    perform_next_step(polling)

    assert_workflow_state(polling, "finished")
    assert polling.result == {"seen_by": "step_2"}
    shop.refresh(parcel)
    assert parcel.status == "delivered"
    assert parcel.delivered_at == assert_step_executed(polling, "step_2").started_at


def test_it_looks_after_an_hour_a_day_and_three_days(polling):
    waits = []
    while polling.next_step != "give_up":
        waits.append(due_in(polling))
        perform_next_step(polling)

    assert waits == [timedelta(hours=1), timedelta(days=1), timedelta(days=3)]


def test_a_parcel_that_never_comes_is_given_up(shop, parcel, polling):
    speedrun(polling)

    assert_workflow_state(polling, "finished")
    assert polling.result is None
    shop.refresh(parcel)
    assert parcel.status == "timed_out"
    assert told(mailer) == ["we lost sight of parcel p-1, please call us"]


def test_a_carrier_that_is_down_has_no_news(polling, caplog):
    carrier.will_raise(ServiceDown("storm"))
    perform_next_step(polling)

    assert polling.history[0].error_message == "storm"
    assert polling.next_step == "step_2"
    assert caplog.records == []

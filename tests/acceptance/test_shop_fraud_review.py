"""Good payments pass at once, bad ones when somebody says so."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from actors import shop as web_shop
from actors.gateways import fraud_detector
from actors.models import Charge, Order, Payment
from actors.order_fulfilment import OrderFulfilment
from actors.payment_processing import PaymentProcessing
from durable import InvalidTransition, Outcome
from durable.testing import assert_step_executed, assert_workflow_state, speedrun


@pytest.fixture
def review(shop, user, shelf):
    made = web_shop.place_prepaid_order(shop, user, {"mug": 1})
    shop.commit()
    return made


@pytest.fixture
def payment(shop, review):
    return shop.scalars(select(Payment)).one()


def test_a_harmless_payment_is_processed_at_once(shop, payment, review):
    speedrun(review)

    assert_workflow_state(review, "finished")
    assert assert_step_executed(review, "assess").result == 10
    assert PaymentProcessing.ongoing(payment) is not None


def test_a_risk_on_the_border_is_no_risk(review):
    fraud_detector.risk = 80
    speedrun(review)

    assert_workflow_state(review, "finished")


def test_a_suspicious_payment_waits_for_a_person(shop, payment, review):
    fraud_detector.risk = 81
    speedrun(review)

    assert_workflow_state(review, "paused")
    assert review.reason == "the risk score is 81"
    assert assert_step_executed(review, "assess").outcome is Outcome.PAUSED
    shop.refresh(payment)
    assert (payment.status, payment.risk_score) == ("in_review", 81)
    assert PaymentProcessing.ongoing(payment) is None


def test_a_reviewer_lets_it_through_without_a_second_assessment(shop, payment, review):
    fraud_detector.risk = 95
    speedrun(review)
    review.resume({"note": "my neighbour"}, by="ann")
    shop.commit()
    speedrun(review)

    assert_workflow_state(review, "finished")
    assert [execution.step for execution in review.history] == ["assess", "release"]
    shop.refresh(payment)
    assert (payment.status, payment.review_note) == ("new", "my neighbour")
    assert PaymentProcessing.ongoing(payment) is not None


def test_a_reviewer_stops_it(shop, payment, review):
    fraud_detector.risk = 95
    speedrun(review)
    review.cancel("a stolen card", by="ann")
    shop.commit()

    assert_workflow_state(review, "canceled")
    assert [(entry.verb, entry.by, entry.reason) for entry in review.audit] == [("cancel", "ann", "a stolen card")]
    assert PaymentProcessing.count() == 0
    with pytest.raises(InvalidTransition):
        review.resume(by="ann")


def test_a_prepaid_order_goes_from_review_to_payment_to_fulfilment(shop, payment, review):
    speedrun(review)
    speedrun(PaymentProcessing.ongoing(payment))
    order = shop.scalars(select(Order)).one()
    speedrun(OrderFulfilment.ongoing(order))

    shop.refresh(order)
    assert order.status == "shipped"
    assert [charge.amount for charge in shop.scalars(select(Charge))] == [900]

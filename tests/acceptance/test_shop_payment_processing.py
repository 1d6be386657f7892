"""An amount is held, then taken; what the bank says in between leads to its own end."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from sqlalchemy import select

from actors.gateways import (
    CardDeclined,
    FraudSuspected,
    HoldExpired,
    RateLimited,
    ServiceDown,
    mailer,
    payments,
)
from actors.models import Charge, Order, OrderLine, Payment
from actors.order_fulfilment import OrderFulfilment
from actors.payment_processing import PaymentProcessing
from durable import Outcome
from durable.testing import (
    assert_step_executed,
    assert_workflow_state,
    perform_next_step,
    perform_step_inline,
    speedrun,
)
from tests.acceptance.conftest import due_in, told


@pytest.fixture
def payment(shop, user, shelf):
    order = Order(user=user, email=user.email, lines=[OrderLine(sku="mug", quantity=1, price=900)])
    made = Payment(order=order, card=user.card, amount=900)
    shop.add(made)
    shop.commit()
    return made


@pytest.fixture
def processing(shop, payment):
    made = PaymentProcessing.create(payment)
    shop.commit()
    return made


def perform(processing, *, steps):
    for _ in range(steps):
        perform_next_step(processing)


def kinds():
    return [booking.kind for booking in payments.ledger]


def test_a_payment_is_held_captured_and_handed_over(shop, payment, processing):
    speedrun(processing)

    assert_workflow_state(processing, "finished")
    shop.refresh(payment)
    assert (payment.status, payment.hold, payment.order.status) == ("captured", "hold-1", "paid")
    assert payment.captured_at == assert_step_executed(processing, "capture").started_at
    assert [(c.order_id, c.amount, c.receipt) for c in shop.scalars(select(Charge))] == [
        (payment.order_id, 900, "capture-2")
    ]
    assert told(mailer) == ["we received your payment, see capture-2"]
    assert OrderFulfilment.ongoing(payment.order) is not None


def test_the_bank_gets_an_hour_for_its_checks(processing):
    perform(processing, steps=2)

    assert processing.next_step == "capture"
    assert due_in(processing) == timedelta(hours=1)


def test_a_payment_without_a_card_is_turned_down(shop, payment, processing):
    payment.card = None
    shop.commit()
    speedrun(processing)

    assert_workflow_state(processing, "canceled")
    assert processing.reason == "there is no card"
    shop.refresh(payment)
    assert (payment.status, payment.failure, payment.order.status) == ("declined", "there is no card", "canceled")


def test_a_declined_card_ends_the_payment_and_says_why(shop, payment, processing):
    payments.will_raise(CardDeclined("insufficient funds"))
    speedrun(processing)

    assert_workflow_state(processing, "canceled")
    assert_step_executed(processing, "hold_amount", state="canceled")
    shop.refresh(payment)
    assert (payment.status, payment.failure) == ("declined", "insufficient funds")
    assert told(mailer) == ["your payment did not work: insufficient funds"]


def test_a_rate_limit_is_obeyed_to_the_second_and_not_reported(shop, processing, caplog):
    perform_next_step(processing)
    payments.will_raise(RateLimited(retry_after=42))
    perform_next_step(processing)

    assert processing.next_step == "hold_amount"
    assert due_in(processing) == timedelta(seconds=42)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []

    speedrun(processing)
    assert_workflow_state(processing, "finished")


def test_a_bank_that_is_down_is_asked_again_later_and_later(processing, caplog):
    perform_next_step(processing)
    payments.will_raise(*(ServiceDown("maintenance") for _ in range(3)))
    waits = []
    for _ in range(3):
        perform_next_step(processing)
        waits.append(due_in(processing).total_seconds())

    assert waits == [30, 60, 120]
    assert caplog.records == []


def test_a_bank_that_stays_down_pauses_the_payment_and_is_reported_once(processing, caplog):
    payments.go_down()
    speedrun(processing)

    assert_workflow_state(processing, "paused")
    assert assert_step_executed(processing, "hold_amount", state="failed").attempt == 6
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1

    payments.come_back()
    speedrun(processing.resume(by="ann"))
    assert_workflow_state(processing, "finished")
    assert kinds() == ["hold", "capture"]


def test_an_expired_hold_is_taken_again_before_the_next_attempt(shop, payment, processing):
    perform(processing, steps=2)
    payments.will_raise(HoldExpired("too late"))
    perform_next_step(processing)

    assert assert_step_executed(processing, "capture", state="scheduled").attempt == 2
    assert processing.history[-2].outcome is Outcome.REATTEMPTED
    speedrun(processing)

    shop.refresh(payment)
    assert payment.hold == "hold-2"
    assert kinds() == ["hold", "hold", "capture"]
    assert len(shop.scalars(select(Charge)).all()) == 1


def test_a_hold_whose_answer_was_lost_is_not_mistaken_for_a_receipt(shop, processing, monkeypatch):
    perform(processing, steps=2)
    payments.will_raise(HoldExpired("too late"))
    hold = payments.hold

    def hold_and_lose_the_answer(*arguments, **keywords):
        monkeypatch.undo()
        hold(*arguments, **keywords)
        raise ServiceDown("the answer was lost")

    monkeypatch.setattr(payments, "hold", hold_and_lose_the_answer)
    speedrun(processing)

    assert kinds() == ["hold", "hold", "capture"]
    assert shop.scalars(select(Charge.receipt)).all() == ["capture-3"]


def test_a_card_that_is_declined_when_the_hold_is_taken_again_ends_the_payment(shop, payment, processing):
    perform(processing, steps=2)
    payments.will_raise(HoldExpired("too late"), CardDeclined("blocked"))
    perform_next_step(processing)

    assert_workflow_state(processing, "canceled")
    assert processing.reason == "blocked"


def test_a_suspected_fraud_waits_for_a_person_and_is_captured_when_they_resume(shop, payment, processing):
    perform(processing, steps=2)
    payments.will_raise(FraudSuspected("unusual"))
    perform_next_step(processing)

    assert_workflow_state(processing, "paused")
    assert processing.reason == "the bank suspects a fraud: unusual"
    shop.refresh(payment)
    assert payment.status == "in_review"
    shop.commit()

    speedrun(processing.resume(by="ann"))
    assert_workflow_state(processing, "finished")
    assert kinds() == ["hold", "capture"]


def test_a_suspected_fraud_that_is_one_is_canceled_by_a_person(shop, processing):
    perform(processing, steps=2)
    payments.will_raise(FraudSuspected("unusual"))
    perform_next_step(processing)
    processing.cancel("it was one", by="ann")

    assert_workflow_state(processing, "canceled")
    assert shop.scalars(select(Charge)).all() == []


@pytest.mark.parametrize(("status", "condition"), [("canceled", "called_off"), ("refunded", "refunded")])
def test_a_payment_that_is_not_wanted_any_more_goes_no_further(shop, payment, processing, status, condition):
    perform(processing, steps=2)
    payment.status = status
    shop.commit()
    speedrun(processing)

    assert_workflow_state(processing, "canceled")
    assert processing.reason == f"cancel_if {condition}"
    assert kinds() == ["hold"]


def test_a_mailer_that_is_down_keeps_nobodys_order_waiting(payment, processing):
    mailer.go_down()
    speedrun(processing)

    assert_step_executed(processing, "send_receipt", state="failed")
    assert_workflow_state(processing, "finished")
    assert OrderFulfilment.ongoing(payment.order) is not None


def test_one_step_can_be_tried_by_itself(shop, payment, processing):
    payments.will_raise(RateLimited(retry_after=60))
    perform_step_inline(processing, "hold_amount")

    assert_workflow_state(processing, "ready")
    assert processing.next_step == "hold_amount"

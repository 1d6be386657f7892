"""From a placed order to a parcel on its way, and the ways in which an order ends early."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from actors import shop as web_shop
from actors.gateways import CardDeclined, ServiceDown, carrier, mailer, payments, warehouse
from actors.models import Charge, Order, Parcel, StockMovement
from actors.order_fulfilment import OrderFulfilment
from actors.status_polling import StatusPolling
from actors.stock import take
from durable import AlreadyOngoing, Outcome
from durable.testing import assert_step_executed, assert_workflow_state, perform_next_step, speedrun
from tests.acceptance.conftest import due_in, told


@pytest.fixture
def fulfilment(shop, user, shelf):
    made = web_shop.place_order(shop, user, {"mug": 2, "pen": 1})
    shop.commit()
    return made


@pytest.fixture
def order(shop, fulfilment):
    return shop.scalars(select(Order)).one()


def movements(shop):
    return shop.execute(select(StockMovement.sku, StockMovement.quantity).order_by(StockMovement.id)).all()


def stock(shop, shelf):
    for product in shelf.values():
        shop.refresh(product)
    return {sku: product.in_stock for sku, product in shelf.items()}


def test_an_order_is_charged_and_shipped(shop, shelf, fulfilment, order):
    speedrun(fulfilment)

    assert_workflow_state(fulfilment, "finished")
    assert [execution.step for execution in fulfilment.history] == [
        "reserve_stock",
        "charge_card",
        "ship",
        "tell_customer",
    ]
    shop.refresh(order)
    assert order.status == "shipped"
    assert movements(shop) == [("mug", -2), ("pen", -1)]
    assert stock(shop, shelf) == {"mug": 8, "pen": 9}
    charge = shop.scalars(select(Charge)).one()
    assert (charge.order_id, charge.amount, charge.receipt) == (order.id, 2050, payments.ledger[0].number)
    assert warehouse.put_aside_for == [order.id]
    parcel = shop.scalars(select(Parcel)).one()
    assert told(mailer) == [f"your order is on its way, follow it as {parcel.tracking_number}"]


def test_the_parcel_is_followed_from_the_moment_it_is_shipped(shop, fulfilment):
    speedrun(fulfilment)

    parcel = shop.scalars(select(Parcel)).one()
    assert StatusPolling.ongoing(parcel) is not None


def test_an_order_that_is_rolled_back_never_had_a_fulfilment(shop, user, shelf):
    web_shop.place_order(shop, user, {"mug": 1})
    shop.rollback()

    assert OrderFulfilment.count() == 0
    assert shop.scalars(select(Order)).all() == []


def test_an_order_is_fulfilled_once(shop, fulfilment, order):
    with pytest.raises(AlreadyOngoing) as taken:
        OrderFulfilment.create(order)

    assert taken.value.workflow_id == fulfilment.id


def test_there_is_an_hour_to_call_an_order_off(fulfilment):
    perform_next_step(fulfilment)

    assert fulfilment.next_step == "charge_card"
    assert due_in(fulfilment) == timedelta(hours=1)


def test_an_order_that_is_called_off_gives_its_goods_back(shop, shelf, fulfilment, order):
    perform_next_step(fulfilment)

    web_shop.call_off(shop, order)
    shop.commit()

    assert_workflow_state(fulfilment, "canceled")
    assert fulfilment.reason == "called off by the customer"
    assert stock(shop, shelf) == {"mug": 10, "pen": 10}
    assert movements(shop) == [("mug", -2), ("pen", -1), ("mug", 2), ("pen", 1)]
    assert payments.ledger == []


def test_calling_an_order_off_is_one_transaction(shop, shelf, fulfilment, order):
    perform_next_step(fulfilment)

    web_shop.call_off(shop, order)
    shop.rollback()

    assert_workflow_state(fulfilment, "ready")
    assert stock(shop, shelf) == {"mug": 8, "pen": 9}


def test_an_order_that_is_paid_cannot_be_called_off(shop, fulfilment, order):
    perform_next_step(fulfilment)
    perform_next_step(fulfilment)

    with pytest.raises(web_shop.TooLate):
        web_shop.call_off(shop, order)


def test_an_order_whose_card_is_being_charged_cannot_be_called_off(shop, durable, fulfilment, order, monkeypatch):
    perform_next_step(fulfilment)
    refusals = []

    def charge_while_the_customer_calls(*_, **__):
        with Session(durable.engine) as session, pytest.raises(web_shop.TooLate) as late:
            web_shop.call_off(session, session.get_one(Order, order.id))
        refusals.append(late.value)
        return "a receipt"

    monkeypatch.setattr(payments, "charge", charge_while_the_customer_calls)
    perform_next_step(fulfilment)

    assert refusals
    assert_step_executed(fulfilment, "charge_card")
    assert_workflow_state(fulfilment, "ready")


def test_an_order_that_staff_cancel_goes_no_further(shop, fulfilment, order):
    order.status = "canceled"
    shop.commit()

    speedrun(fulfilment)

    assert_workflow_state(fulfilment, "canceled")
    assert fulfilment.reason == "cancel_if called_off"
    assert movements(shop) == []


def test_an_order_of_what_is_not_there_is_turned_down_and_takes_nothing(shop, user, shelf):
    fulfilment = web_shop.place_order(shop, user, {"mug": 2, "pen": 11})
    shop.commit()

    speedrun(fulfilment)

    assert_workflow_state(fulfilment, "canceled")
    assert fulfilment.reason == "out of stock: pen"
    assert movements(shop) == []
    assert shop.scalars(select(Order.status)).one() == "canceled"
    assert told(mailer) == ["we are sorry, out of stock: pen"]


def test_a_declined_card_gives_the_goods_back_and_ends_the_order(shop, shelf, fulfilment):
    payments.will_raise(CardDeclined("insufficient funds"))

    speedrun(fulfilment)

    assert_workflow_state(fulfilment, "canceled")
    assert fulfilment.reason == "card declined: insufficient funds"
    assert stock(shop, shelf) == {"mug": 10, "pen": 10}
    assert shop.scalars(select(Charge)).all() == []
    assert told(mailer) == ["we are sorry, card declined: insufficient funds"]


def test_an_order_without_a_card_is_declined(shop, user, shelf):
    user.card = None
    fulfilment = web_shop.place_order(shop, user, {"mug": 1})
    shop.commit()

    speedrun(fulfilment)

    assert fulfilment.reason == "card declined: there is no card"


def test_what_a_step_wrote_is_undone_when_the_warehouse_does_not_answer(shop, shelf, fulfilment):
    warehouse.will_raise(ServiceDown("lunch"))

    perform_next_step(fulfilment)

    assert movements(shop) == []
    assert stock(shop, shelf) == {"mug": 10, "pen": 10}
    assert assert_step_executed(fulfilment, "reserve_stock", state="scheduled").attempt == 2
    assert due_in(fulfilment) == timedelta(minutes=5)

    speedrun(fulfilment)
    assert movements(shop) == [("mug", -2), ("pen", -1)]


def test_the_bank_is_asked_with_the_same_key_after_an_error(fulfilment, monkeypatch):
    perform_next_step(fulfilment)
    charge = payments.charge

    def charge_and_lose_the_answer(*arguments, **keywords):
        monkeypatch.undo()
        charge(*arguments, **keywords)
        raise ServiceDown("the answer was lost")

    monkeypatch.setattr(payments, "charge", charge_and_lose_the_answer)
    speedrun(fulfilment)

    assert_workflow_state(fulfilment, "finished")
    assert len(payments.ledger) == 1


def test_a_carrier_that_stays_down_pauses_the_order_and_a_person_resumes_it(shop, fulfilment, order):
    carrier.go_down()
    speedrun(fulfilment)

    assert_workflow_state(fulfilment, "paused")
    assert len([e for e in fulfilment.history if e.step == "ship"]) == 13

    carrier.come_back()
    fulfilment.resume(by="ann", reason="the carrier is back")
    shop.commit()
    speedrun(fulfilment)

    assert_workflow_state(fulfilment, "finished")
    shop.refresh(order)
    assert order.status == "shipped"
    assert [(entry.verb, entry.by) for entry in fulfilment.audit] == [("resume", "ann")]


def test_a_person_may_skip_the_charge_of_a_gift(shop, fulfilment):
    perform_next_step(fulfilment)
    fulfilment.skip(by="ann", reason="it is a gift")
    speedrun(fulfilment)

    assert_step_executed(fulfilment, "charge_card", state="skipped")
    assert_workflow_state(fulfilment, "finished")
    assert payments.ledger == []


def test_an_order_that_was_paid_in_advance_is_not_charged(shop, fulfilment, order):
    order.status = "paid"
    shop.commit()

    speedrun(fulfilment)

    assert_step_executed(fulfilment, "charge_card", state="skipped")
    assert_workflow_state(fulfilment, "finished")
    assert payments.ledger == []


def test_two_orders_of_the_last_goods_are_not_both_taken(shop, user, shelf):
    shelf["mug"].in_stock = 1
    first, second = (web_shop.place_order(shop, user, {"mug": 1}) for _ in range(2))
    shop.commit()

    speedrun(first)
    speedrun(second)

    assert_workflow_state(first, "finished")
    assert second.reason == "out of stock: mug"


def test_goods_stay_locked_until_the_order_that_takes_them_is_committed(shop, durable, order):
    take(shop, order)

    with Session(durable.engine) as other:
        other.execute(text("SET LOCAL lock_timeout = '10ms'"))
        same_goods = other.get_one(Order, order.id)
        with pytest.raises(OperationalError, match="lock timeout"):
            take(other, same_goods)


def test_an_order_that_is_deleted_ends_its_fulfilment(shop, fulfilment, order):
    for line in order.lines:
        shop.delete(line)
    shop.delete(order)
    shop.commit()

    speedrun(fulfilment)

    assert_workflow_state(fulfilment, "canceled")
    assert fulfilment.history[-1].outcome is Outcome.HERO_GONE

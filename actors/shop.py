"""What the shop's web pages would call: each of these is one transaction of its caller."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy.orm import Session

from actors import stock
from actors.fraud_review import FraudReview
from actors.models import Order, OrderLine, Payment, Product, User
from actors.order_fulfilment import OrderFulfilment
from durable import WorkflowState


class TooLate(Exception):
    """The order is paid, or is being paid at this moment."""


def place_order(session: Session, user: User, basket: Mapping[str, int]) -> OrderFulfilment:
    """Take an order that is paid when it is fulfilled, and start its fulfilment."""
    return OrderFulfilment.create(_order(session, user, basket))


def place_prepaid_order(session: Session, user: User, basket: Mapping[str, int]) -> FraudReview:
    """Take an order that is paid in advance, and start the review of its payment."""
    order = _order(session, user, basket)
    payment = Payment(order=order, card=user.card, amount=order.total)
    session.add(payment)
    return FraudReview.create(payment)


def call_off(session: Session, order: Order) -> None:
    """Cancel an order and its fulfilment, and put its goods back on the shelf.

    A step that is running would end first and might charge the card, so then it is too late.
    """
    session.refresh(order, with_for_update=True)
    fulfilment = OrderFulfilment.ongoing(order)
    if order.status != "placed" or fulfilment is None:
        raise TooLate(f"order {order.id} is {order.status}")
    if fulfilment.cancel("called off by the customer").state is not WorkflowState.CANCELED:
        raise TooLate(f"order {order.id} is being processed")
    stock.give_back(session, order)
    order.status = "canceled"


def _order(session: Session, user: User, basket: Mapping[str, int]) -> Order:
    lines = [
        OrderLine(sku=sku, quantity=quantity, price=session.get_one(Product, sku).price)
        for sku, quantity in basket.items()
    ]
    order = Order(user=user, email=user.email, card=user.card, lines=lines)
    session.add(order)
    return order

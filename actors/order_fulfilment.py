"""Order fulfilment: from a placed order to a parcel on its way."""

from __future__ import annotations

from actors import stock
from actors.gateways import CardDeclined, ServiceDown, carrier, mailer, payments, warehouse
from actors.models import Charge, Order, Parcel
from actors.status_polling import StatusPolling
from actors.times import AN_HOUR
from durable import ExceptionPolicy, Workflow, cancel_if, step


class OrderFulfilment(Workflow[Order], queue="fulfilment"):
    """Take the goods off the shelf, charge the card, hand the parcel over, tell the customer."""

    policies = [ExceptionPolicy("reattempt", matching=ServiceDown, wait="5m", max_reattempts=12)]

    @cancel_if
    def called_off(self) -> bool:
        return self.hero.status == "canceled"

    @step
    def reserve_stock(self) -> None:
        short = stock.take(self.session, self.hero)
        if short:
            self.turn_down(f"out of stock: {', '.join(short)}")
        self.session.flush()  # our books first: what they refuse, the warehouse never hears of
        warehouse.put_aside(self.hero.id, key=self.execution.idempotency_key)

    @step(wait=AN_HOUR, skip_if=lambda self: self.hero.status == "paid")  # in which it can be called off
    def charge_card(self) -> str:
        order = self.hero
        try:
            receipt = payments.charge(order.card, order.total, key=self.execution.idempotency_key)
        except CardDeclined as declined:
            stock.give_back(self.session, order)
            self.turn_down(f"card declined: {declined}")
        charged_at = self.execution.started_at
        self.session.add(Charge(order_id=order.id, amount=order.total, receipt=receipt, charged_at=charged_at))
        order.status = "paid"
        return receipt

    @step
    def ship(self) -> str:
        number = carrier.book(self.hero.id, key=self.execution.idempotency_key)
        parcel = Parcel(order_id=self.hero.id, tracking_number=number)
        self.session.add(parcel)
        StatusPolling.create(parcel)  # in the transaction of this step, like all that it writes
        self.hero.status = "shipped"
        return number

    @step
    def tell_customer(self) -> None:
        mailer.send(self.hero.email, f"your order is on its way, follow it as {self.results['ship']}")

    def turn_down(self, reason: str) -> None:
        """End the order here; what the step wrote until now is kept."""
        self.hero.status = "canceled"
        mailer.send(self.hero.email, f"we are sorry, {reason}")
        self.cancel(reason)

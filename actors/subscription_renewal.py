"""Subscription renewal: announces, charges and begins one more period."""

from __future__ import annotations

from datetime import timedelta

from tenacity import wait_exponential, wait_random

from actors.gateways import CardDeclined, ServiceDown, mailer, payments
from actors.models import Charge, Subscription
from durable import ExceptionPolicy, Workflow, cancel_if, on_exception, step

PERIOD = timedelta(days=30)
PATIENCE = wait_exponential(multiplier=60, max=3600) + wait_random(0, 30)


def period(subscription: Subscription, _: object) -> str:
    """Return what may be renewed only once: the period after the one that is paid."""
    return f"{subscription.id} after {subscription.paid_until}"


class SubscriptionRenewal(
    Workflow[Subscription],
    queue="billing",
    priority=-10,
    unique=period,
    unique_in=["ready", "performing", "waiting", "paused", "finished"],
):
    """Renew a subscription for one period, however often somebody asks for it."""

    @cancel_if
    def closed(self) -> bool:
        return self.hero.status == "closed"

    @on_exception(CardDeclined)
    def suspend(self, declined: CardDeclined) -> None:
        self.hero.status = "past_due"
        mailer.send(self.hero.user.email, "your card was declined, please give us another one")
        self.cancel(f"card declined: {declined}")

    @step
    def send_notice(self) -> None:
        mailer.send(self.hero.user.email, f"in three days we will charge {self.hero.price} cents")

    @step(
        wait=timedelta(days=3),
        on_exception=[ExceptionPolicy("reattempt", matching=ServiceDown, wait=PATIENCE, max_reattempts=5)],
    )
    def charge(self) -> str:
        renewed = self.hero
        receipt = payments.charge(renewed.user.card, renewed.price, key=self.execution.idempotency_key)
        charged_at = self.execution.started_at
        self.session.add(
            Charge(subscription_id=renewed.id, amount=renewed.price, receipt=receipt, charged_at=charged_at)
        )
        return receipt

    @step
    def begin_period(self) -> None:
        self.hero.paid_until += PERIOD
        self.hero.status = "active"
        mailer.send(
            self.hero.user.email, f"paid until {self.hero.paid_until}, your receipt is {self.results['charge']}"
        )

"""Payment processing: holds the amount on the card, takes it an hour later, and has the order fulfilled."""

from __future__ import annotations

from tenacity import wait_exponential

from actors.gateways import CardDeclined, FraudSuspected, HoldExpired, RateLimited, ServiceDown, mailer, payments
from actors.models import Charge, Payment
from actors.order_fulfilment import OrderFulfilment
from actors.times import AN_HOUR
from durable import ExceptionPolicy, Workflow, cancel_if, on_exception, step


class PaymentProcessing(Workflow[Payment], queue="billing", priority=-10):
    """Hold, capture, receipt, hand over.

    What the bank means is handled where it is asked; how it fails is handled once, for all steps.
    """

    policies = [
        ExceptionPolicy(
            "reattempt",
            matching=ServiceDown,
            wait=wait_exponential(multiplier=30, max=600),
            max_reattempts=5,
            report="terminal_only",
        )
    ]

    @on_exception(RateLimited, report="never")
    def back_off(self, error: RateLimited) -> None:
        self.reattempt(wait=error.retry_after)

    @cancel_if
    def called_off(self) -> bool:
        return self.hero.status == "canceled"

    @cancel_if
    def refunded(self) -> bool:
        return self.hero.status == "refunded"

    @step
    def check_card(self) -> None:
        if self.hero.card is None:
            self.turn_down("there is no card")

    @step
    def hold_amount(self) -> None:
        self.take_hold()

    @step(wait=AN_HOUR)  # the bank's own checks take a while
    def capture(self) -> str:
        payment = self.hero
        try:
            receipt = payments.capture(payment.hold, payment.amount, key=self.execution.idempotency_key)
        except HoldExpired:
            self.take_hold()
            self.reattempt()
        except FraudSuspected as suspicion:
            payment.status = "in_review"
            self.pause(f"the bank suspects a fraud: {suspicion}")
        payment.status = "captured"
        payment.captured_at = captured_at = self.execution.started_at
        payment.order.status = "paid"
        self.session.add(
            Charge(order_id=payment.order_id, amount=payment.amount, receipt=receipt, charged_at=captured_at)
        )
        return receipt

    @step(on_exception="skip")  # nobody's order waits for a mail
    def send_receipt(self) -> None:
        mailer.send(self.hero.order.email, f"we received your payment, see {self.results['capture']}")

    @step
    def hand_over(self) -> None:
        OrderFulfilment.create(self.hero.order)

    def take_hold(self) -> None:
        """Have the amount held, with a key of its own: this step may ask the bank for other things too."""
        try:
            self.hero.hold = payments.hold(
                self.hero.card, self.hero.amount, key=f"hold {self.execution.idempotency_key}"
            )
        except CardDeclined as declined:
            self.turn_down(str(declined))

    def turn_down(self, reason: str) -> None:
        """End the payment and its order, and say why."""
        self.hero.status = "declined"
        self.hero.failure = reason
        self.hero.order.status = "canceled"
        mailer.send(self.hero.order.email, f"your payment did not work: {reason}")
        self.cancel(reason)

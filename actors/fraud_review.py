"""Fraud review: a payment that looks bad waits for a person."""

from __future__ import annotations

from actors.gateways import fraud_detector
from actors.models import Payment
from actors.payment_processing import PaymentProcessing
from durable import Workflow, step

SUSPICIOUS = 80


class FraudReview(Workflow[Payment], queue="billing"):
    """Let good payments through at once, and bad ones when somebody says so.

    A reviewer lets it through with `resume({"note": ...}, by=...)` and stops it with `cancel(reason, by=...)`.
    """

    @step
    def assess(self) -> int:
        score = fraud_detector.score(self.hero.card, self.hero.amount)
        self.hero.risk_score = score
        if score > SUSPICIOUS:
            self.hero.status = "in_review"
            self.pause(f"the risk score is {score}", then="next")  # the score is known: do not ask for it again
        return score

    @step
    def release(self) -> None:
        self.hero.status = "new"
        self.hero.review_note = (self.resume_input or {}).get("note")
        PaymentProcessing.create(self.hero)

"""One import loads every workflow of the shop."""

from __future__ import annotations

import subprocess
import sys

EXPECTED = {
    "AccountVerification",
    "Compliance",
    "DataExport",
    "DocumentProcessing",
    "Engagement",
    "FraudReview",
    "Notification",
    "OrderFulfilment",
    "PaymentProcessing",
    "StatusPolling",
    "SubscriptionRenewal",
    "TrialConversion",
    "UserErasure",
    "UserOnboarding",
    "WebhookDelivery",
}


def test_one_import_registers_every_workflow_without_a_database():
    code = (
        "import actors.workflows; from durable import Workflow; print(*(c.__name__ for c in Workflow.__subclasses__()))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert set(loaded.stdout.split()) == EXPECTED

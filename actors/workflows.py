"""All workflows of the shop: one import loads every class.

What to look at for what:

    order_fulfilment       steps, a wait, a step's own transaction, idempotency keys, starting another workflow
    subscription_renewal   unique keys, an exception handler that writes, waits of tenacity
    document_processing    an async step, NonRetryable, a version and the gravestone of a removed step
    account_verification   data that belongs to the workflow, reattempts that end
    status_polling         anonymous steps, finishing early
    webhook_delivery       steps made by a loop
    data_export            results of earlier steps, after_execution
    compliance             before_step, before_execution, around_execution, an exception that a person mends
    notification           skip_if in its three forms, typed input
    engagement             several cancel_if
    trial_conversion       canceling from inside a step
    fraud_review           pausing for a person, who answers with resume()
    user_onboarding        weeks of waits, skipping from inside a step
    payment_processing     exceptions by hand, by policy and by handler
    user_erasure           a last step that deletes the hero
"""

from __future__ import annotations

from actors.account_verification import AccountVerification
from actors.compliance import Compliance
from actors.data_export import DataExport
from actors.document_processing import DocumentProcessing
from actors.engagement import Engagement
from actors.fraud_review import FraudReview
from actors.notification import Notification
from actors.order_fulfilment import OrderFulfilment
from actors.payment_processing import PaymentProcessing
from actors.status_polling import StatusPolling
from actors.subscription_renewal import SubscriptionRenewal
from actors.trial_conversion import TrialConversion
from actors.user_erasure import UserErasure
from actors.user_onboarding import UserOnboarding
from actors.webhook_delivery import WebhookDelivery

__all__ = [
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
]

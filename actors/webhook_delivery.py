"""Webhook delivery: tries a URL, at first often, then patiently, until it takes the news."""

from __future__ import annotations

from actors.gateways import mailer, web
from actors.models import Webhook
from durable import ExceptionPolicy, Workflow, step

OPERATIONS = "operations@shop.example"


class WebhookDelivery(Workflow[Webhook], queue="webhooks", priority=10):
    """Try at once, every 30 seconds for two minutes, every 5 minutes for half an hour, hourly for six hours."""

    policies = [ExceptionPolicy("skip", matching="actors.gateways.service.ServiceDown", report="never")]

    for delay in ["0s"] + ["30s"] * 4 + ["5m"] * 6 + ["1h"] * 6:

        @step(wait=delay)
        def _(self) -> None:
            self.deliver()

    @step
    def mark_undeliverable(self) -> None:
        self.hero.status = "undeliverable"
        mailer.send(OPERATIONS, f"{self.hero.url} does not take webhook {self.hero.id}")

    def deliver(self) -> None:
        """Finish if the URL takes it; else return, and the next step tries again."""
        status = web.post(self.hero.url, {"id": self.hero.id, **self.hero.payload})
        if status >= 300:
            self.logger.info("the URL answered %s", status)
            return
        self.hero.status = "delivered"
        self.hero.delivered_at = self.execution.started_at
        self.finish({"delivered_in": self.execution.step})

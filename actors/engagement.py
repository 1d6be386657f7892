"""Engagement: three letters to a new customer, for as long as they want to hear from us."""

from __future__ import annotations

from actors.gateways import mailer
from actors.models import User
from durable import Workflow, cancel_if, step


class Engagement(Workflow[User]):
    """Write in weeks 1, 2 and 4."""

    @cancel_if
    def closed(self) -> bool:
        return self.hero.closed

    @cancel_if
    def unsubscribed(self) -> bool:
        return self.hero.unsubscribed

    def after_execution(self) -> None:
        self.hero.last_contacted_at = self.execution.started_at

    @step
    def write_in_week_1(self) -> None:
        mailer.send(self.hero.email, "what you can do here")

    @step(wait="1w")
    def write_in_week_2(self) -> None:
        mailer.send(self.hero.email, "what others do here")

    @step(wait="2w")
    def write_in_week_4(self) -> None:
        mailer.send(self.hero.email, "what you have not tried yet")

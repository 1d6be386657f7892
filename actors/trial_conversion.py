"""Trial conversion: reminds somebody on trial, and ends the trial of whoever does not buy."""

from __future__ import annotations

from actors.gateways import mailer
from actors.models import Subscription
from durable import Workflow, step


class TrialConversion(Workflow[Subscription]):
    """Remind after a week, remind again three days later, expire a day after that."""

    @step(wait="7d")
    def remind(self) -> None:
        self.stop_if_converted()
        mailer.send(self.hero.user.email, "how do you like it? your trial ends in four days")

    @step(wait="3d")
    def remind_again(self) -> None:
        self.stop_if_converted()
        mailer.send(self.hero.user.email, "your trial ends tomorrow")

    @step(wait="1d")
    def expire(self) -> None:
        self.stop_if_converted()
        self.hero.status = "expired"

    def stop_if_converted(self) -> None:
        """Cancel: there is nobody left to convert."""
        if self.hero.status != "trial":
            self.cancel(f"the subscription is {self.hero.status}")

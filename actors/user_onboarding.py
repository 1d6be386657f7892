"""User onboarding: the first weeks of a new customer."""

from __future__ import annotations

from actors.gateways import crm, mailer
from actors.models import User
from durable import Workflow, cancel_if, step


class UserOnboarding(Workflow[User]):
    """Welcome somebody, and remind them only of what they have not done by themselves."""

    @cancel_if
    def closed(self) -> bool:
        return self.hero.closed

    @cancel_if
    def already_onboarded(self) -> bool:
        return self.hero.onboarded_at is not None

    @step
    def welcome(self) -> None:
        mailer.send(self.hero.email, "welcome to the shop")
        self.hero.welcomed_at = self.execution.started_at

    @step(wait="1d")
    def remind_of_profile(self) -> None:
        if self.hero.profile_complete:
            self.skip("the profile is complete")
        mailer.send(self.hero.email, "please complete your profile")

    @step(wait="2d", skip_if="email_verified")
    def remind_of_email(self) -> None:
        mailer.send(self.hero.email, "please confirm this address")

    @step(wait="3d", skip_if=lambda self: self.hero.orders)
    def suggest_products(self) -> None:
        mailer.send(self.hero.email, "others began with these")

    @step(wait="5d")
    def book_call(self) -> str:
        if self.hero.call_booked_at is not None:
            self.skip("a call is booked")
        self.hero.call_booked_at = self.execution.started_at
        return crm.book_call(self.hero.email, key=self.execution.idempotency_key)

    @step(wait="7d")
    def complete(self) -> None:
        self.hero.onboarded_at = self.execution.started_at
        mailer.send(self.hero.email, "you know your way around now")

    def email_verified(self) -> bool:
        """Tell whether the address is confirmed."""
        return self.hero.email_verified

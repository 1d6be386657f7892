"""Account verification: somebody proves an address, a phone and who they are."""

from __future__ import annotations

import secrets

from actors.gateways import identity, mailer, sms
from actors.models import User
from durable import Workflow, step

LOOKS = 12


class AccountVerification(Workflow[User]):
    """Send a code to each address and look every five minutes, for an hour, whether it was confirmed."""

    @step(skip_if=lambda self: self.hero.email_verified)
    def verify_email(self) -> None:
        self.data["email_code"] = new_code()
        mailer.send(self.hero.email, f"your code is {self.data['email_code']}")

    @step
    def await_email(self) -> None:
        if not self.hero.email_verified:
            self.look_again()

    @step(skip_if="reached_by_phone")
    def verify_phone(self) -> None:
        self.data["phone_code"] = new_code()
        sms.send(self.hero.phone, f"your code is {self.data['phone_code']}")

    @step
    def await_phone(self) -> None:
        if not self.reached_by_phone():
            self.look_again()

    @step
    def verify_identity(self) -> str:
        return identity.ask(self.hero.email, key=self.execution.idempotency_key)

    @step
    def complete(self) -> None:
        self.hero.verified_at = self.execution.started_at
        self.finish({"case": self.results["verify_identity"]})

    def reached_by_phone(self) -> bool:
        """Tell whether there is nothing to verify about the phone."""
        return not self.hero.phone or self.hero.phone_verified

    def look_again(self) -> None:
        """Run this step again in five minutes, unless it has run often enough."""
        if self.execution.attempt > LOOKS:
            self.cancel("the code was never entered")
        self.reattempt(wait="5m")


def enter_email_code(user: User, code: str) -> bool:
    """Take the code that a user typed in, and return whether it is the one we sent."""
    verification = AccountVerification.ongoing(user)
    if verification is None or verification.data.get("email_code") != code:
        return False
    user.email_verified = True
    return True


def new_code() -> str:
    """Return six digits that nobody can guess."""
    return f"{secrets.randbelow(1_000_000):06}"

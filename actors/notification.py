"""Notification: one piece of news for one customer, on every channel that they allow."""

from __future__ import annotations

from pydantic import BaseModel, Field

from actors.gateways import mailer, push, sms
from actors.models import User
from durable import Workflow, step

PUSH_IS_LIVE = False


class News(BaseModel):
    """What there is to tell."""

    text: str = Field(min_length=1)


class Notification(Workflow[User], unique="none"):
    """Tell the news by mail, text message and push; several may be on their way to one customer."""

    input: News

    @step(skip_if=lambda self: self.hero.unsubscribed)
    def send_email(self) -> None:
        mailer.send(self.hero.email, self.input.text)

    @step(skip_if="sms_disabled", on_exception="reattempt", max_reattempts=2, terminal_action="skip")
    def send_sms(self) -> None:
        sms.send(self.hero.phone, self.input.text)

    @step(skip_if=not PUSH_IS_LIVE)
    def send_push(self) -> None:
        push.send(self.hero.email, self.input.text)

    def sms_disabled(self) -> bool:
        """Tell whether a text message is unwanted or impossible."""
        return not self.hero.sms_enabled or not self.hero.phone

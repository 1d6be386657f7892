"""User erasure: forgets a customer who asks for it, here and at every partner."""

from __future__ import annotations

import json

from sqlalchemy import delete, update

from actors.gateways import ServiceDown, analytics, crm, mailer, storage
from actors.models import Document, Export, Order, Subscription, User
from durable import ExceptionPolicy, Workflow, step


class UserErasure(Workflow[User]):
    """Archive what the law wants kept, erase the rest, and delete the hero in the very last step.

    If the row is deleted by anybody else, the workflow is canceled before its next step.
    """

    policies = [ExceptionPolicy("reattempt", matching=ServiceDown, wait="10m", max_reattempts=None)]

    @step
    def archive(self) -> None:
        orders = [{"order": order.id, "total": order.total} for order in self.hero.orders]
        storage.write(f"archive/user-{self.hero.id}.json", json.dumps({"email": self.hero.email, "orders": orders}))

    @step
    def tell_partners(self) -> None:
        for partner in (crm, analytics):
            partner.forget(self.hero.email)

    @step(wait="24h")  # the partners get a day
    def erase_data(self) -> None:
        for owned in (Document, Export, Subscription):
            self.session.execute(delete(owned).where(owned.user_id == self.hero.id))
        self.session.execute(update(Order).where(Order.user_id == self.hero.id).values(user_id=None, email="erased"))

    @step
    def confirm(self) -> None:
        mailer.send(self.hero.email, "we have forgotten you")

    @step
    def delete_user(self) -> None:
        self.session.delete(self.hero)

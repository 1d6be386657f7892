"""Status polling: asks the carrier, less and less often, whether a parcel has arrived."""

from __future__ import annotations

from actors.gateways import ServiceDown, carrier, mailer
from actors.models import Order, Parcel
from durable import ExceptionPolicy, Workflow, step


class StatusPolling(Workflow[Parcel]):
    """Look after an hour, a day and three days more; then give up."""

    policies = [ExceptionPolicy("skip", matching=ServiceDown, report="never")]  # no news: the next look may have some

    @step(wait="1h")
    def _(self) -> None:
        self.look()

    @step(wait="1d")
    def _(self) -> None:
        self.look()

    @step(wait="3d")
    def _(self) -> None:
        self.look()

    @step
    def give_up(self) -> None:
        self.hero.status = "timed_out"
        order = self.session.get_one(Order, self.hero.order_id)
        mailer.send(order.email, f"we lost sight of parcel {self.hero.tracking_number}, please call us")

    def look(self) -> None:
        """Finish as soon as the parcel is there."""
        if carrier.status(self.hero.tracking_number) == "delivered":
            self.hero.status = "delivered"
            self.hero.delivered_at = self.execution.started_at
            self.finish({"seen_by": self.execution.step})

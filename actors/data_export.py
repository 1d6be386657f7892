"""Data export: gives a customer a copy of everything the shop knows of them."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import select

from actors.gateways import ServiceDown, mailer, storage
from actors.models import Export, Order
from durable import ExceptionPolicy, Workflow, step

STORAGE_TROUBLE = ExceptionPolicy("reattempt", matching=ServiceDown, wait="30s", max_reattempts=3)


class DataExport(Workflow[Export], queue="exports", priority=20):
    """Gather, write, tell; the customer's page shows what is done already."""

    def after_execution(self) -> None:
        self.hero.last_step = self.execution.step

    @step
    def gather_records(self) -> list[dict[str, Any]]:
        orders = self.session.scalars(select(Order).where(Order.user_id == self.hero.user_id).order_by(Order.id))
        return [{"order": order.id, "status": order.status, "total": order.total} for order in orders]

    @step(on_exception=[STORAGE_TROUBLE])
    def write_to_storage(self) -> None:
        path = f"exports/{self.hero.id}.json"
        storage.write(path, json.dumps(self.results["gather_records"]))
        self.hero.path = path
        self.hero.exported_at = self.execution.started_at

    @step
    def notify_user(self) -> None:
        mailer.send(self.hero.user.email, f"your data is ready: {self.hero.path}")

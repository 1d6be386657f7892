"""Compliance: files a period's revenue with the tax authority, after a check."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import func, select

from actors.gateways import authority
from actors.models import Charge, Report
from durable import Workflow, step


class IncompleteReport(Exception):
    """Somebody must add what is missing before it can be filed."""


class Compliance(Workflow[Report]):
    """Collect, check, submit. A check that fails pauses, and `resume()` checks again."""

    def before_execution(self) -> None:
        if not authority.is_open:
            self.reattempt(wait="1h")

    def around_execution(self, run: Callable[[], object]) -> object:
        with authority.signed_in():
            return run()

    @step
    def collect_revenue(self) -> None:
        report = self.hero
        charged = select(func.coalesce(func.sum(Charge.amount), 0)).where(
            Charge.charged_at >= report.begins, Charge.charged_at < report.ends
        )
        report.revenue = self.session.scalar(charged)

    @step
    def submit_report(self) -> None:
        report = self.hero
        report.receipt = authority.submit(
            report.begins, report.ends, report.revenue, key=self.execution.idempotency_key
        )

    @step(before_step=submit_report)
    def check_report(self) -> None:
        if self.hero.tax_number is None:
            raise IncompleteReport(f"report {self.hero.id} has no tax number")
        self.hero.audited_at = self.execution.started_at
        self.logger.info("the revenue of %s cents may be filed", self.hero.revenue)

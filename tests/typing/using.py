"""What callers get: the class itself from `create`, `Self` from every verb, awaitable twins of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_type
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from durable import AlreadyOngoing, AuditEntry, Created, Execution, Workflow, WorkflowState, workflow_of
from tests.typing.defining import Heroless, Plain, Renewal, Yearly
from tests.typing.heroes import Subscription


class Contract:
    """A hero's class that finds its ongoing workflow."""

    renewal = workflow_of(Renewal)
    by_name = workflow_of("renewal")


def creating(subscription: Subscription, session: Session) -> None:
    assert_type(Renewal.create(subscription), Renewal)
    assert_type(Renewal.create(subscription, {"amount": 9}, session=session, wait="3d", priority=1), Renewal)
    assert_type(Renewal.get_or_create(subscription, unique_key="2026"), Renewal)
    assert_type(Yearly.create(subscription), Yearly)
    assert_type(Plain.create(subscription), Plain)
    assert_type(Plain.create(None), Plain)
    assert_type(Heroless.create(None), Heroless)
    many = Renewal.create_many([subscription])
    assert_type(many, Created[Subscription])
    assert_type(many.created, list[UUID])
    assert_type(many.skipped, list[Subscription])


def refused(subscription: Subscription) -> UUID:
    try:
        return Renewal.create(subscription).id
    except AlreadyOngoing as taken:
        return taken.workflow_id


def reading(subscription: Subscription, renewal: Renewal) -> None:
    assert_type(Renewal.get(renewal.id), Renewal)
    assert_type(Renewal.get("0190…"), Renewal)
    assert_type(Renewal.list(state="ready", hero=subscription, limit=10, after=renewal), Sequence[Renewal])
    assert_type(Renewal.list(state=[WorkflowState.READY, "paused"]), Sequence[Renewal])
    assert_type(Renewal.count(state=WorkflowState.PAUSED), int)
    assert_type(Renewal.ongoing(subscription), Renewal | None)
    assert_type(Workflow.get(renewal.id), Workflow[Any])
    assert_type(Workflow.list(), Sequence[Workflow[Any]])
    assert_type(renewal.hero, Subscription)
    assert_type(renewal.id, UUID)
    assert_type(renewal.state, WorkflowState)
    assert_type(renewal.reason, str | None)
    assert_type(renewal.history, list[Execution])
    assert_type(renewal.audit, list[AuditEntry])
    assert_type(renewal.current_execution, Execution | None)
    assert_type(renewal.next_step, str | None)
    assert_type(renewal.previous_step, str | None)


def steering(renewal: Renewal, yearly: Yearly) -> None:
    assert_type(renewal.pause("look", by="ann"), Renewal)
    assert_type(renewal.resume({"card": 1}, at="charge", by="ann", reason="mended"), Renewal)
    assert_type(renewal.skip(), Renewal)
    assert_type(renewal.cancel("closed"), Renewal)
    assert_type(renewal.retry(from_step="charge"), Renewal)
    assert_type(renewal.refresh(), Renewal)
    assert_type(yearly.pause().resume(), Yearly)


async def awaiting(subscription: Subscription, session: AsyncSession, renewal: Renewal) -> None:
    assert_type(await Renewal.acreate(subscription, session=session), Renewal)
    assert_type(await Renewal.acreate(subscription, wait="3d"), Renewal)
    assert_type(await Renewal.aget_or_create(subscription), Renewal)
    assert_type(await Renewal.acreate_many([subscription]), Created[Subscription])
    assert_type(await Renewal.aget(renewal.id, session=session), Renewal)
    assert_type(await Renewal.alist(state="ready"), Sequence[Renewal])
    assert_type(await renewal.apause(), Renewal)
    assert_type(await renewal.aresume(at="charge"), Renewal)
    assert_type(await renewal.askip(), Renewal)
    assert_type(await renewal.acancel("closed"), Renewal)
    assert_type(await renewal.aretry(), Renewal)
    assert_type(await renewal.arefresh(), Renewal)


def finding(contract: Contract) -> None:
    assert_type(contract.renewal, Renewal | None)
    assert_type(Contract.renewal, workflow_of[Renewal])
    assert_type(contract.by_name, Workflow[Any] | None)

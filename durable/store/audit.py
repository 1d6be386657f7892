"""Who used which verb on a workflow, and why."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Connection, insert, select

from durable.clock import Clock
from durable.schema import audit
from durable.store.rows import AuditEntry


def record(conn: Connection, clock: Clock, workflow_id: UUID, verb: str, *, by: str | None, reason: str | None) -> None:
    """Keep that a verb was used."""
    conn.execute(insert(audit).values(workflow_id=workflow_id, verb=verb, by=by, reason=reason, at=clock.now))


def entries(conn: Connection, workflow_id: UUID) -> list[AuditEntry]:
    """Return the verbs used on a workflow, in order."""
    query = (
        select(audit.c["at"], audit.c.verb, audit.c.by, audit.c.reason)
        .where(audit.c.workflow_id == workflow_id)
        .order_by(audit.c.id)
    )
    return [AuditEntry(**row._mapping) for row in conn.execute(query)]

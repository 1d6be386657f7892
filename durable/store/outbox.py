"""The outbox: messages not yet taken. A row stays until its execution is claimed."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Connection, delete, select
from sqlalchemy.dialects.postgresql import insert

from durable.schema import executions, outbox, workflows


def arm(conn: Connection, execution_id: UUID) -> None:
    """Have a scheduled execution's message sent when it is due."""
    message = (
        select(
            executions.c.id,
            workflows.c.name,
            workflows.c.queue,
            workflows.c.priority,
            executions.c.scheduled_for,
        )
        .join_from(executions, workflows, workflows.c.id == executions.c.workflow_id)
        .where(executions.c.id == execution_id)
    )
    conn.execute(
        insert(outbox)
        .from_select(["execution_id", "name", "queue", "priority", "due_at"], message)
        .on_conflict_do_nothing(index_elements=["execution_id"])
    )


def disarm(conn: Connection, execution_id: UUID) -> None:
    """Have no message sent for an execution."""
    conn.execute(delete(outbox).where(outbox.c.execution_id == execution_id))

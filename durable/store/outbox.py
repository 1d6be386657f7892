"""The outbox: messages not yet taken. A row stays until its execution is claimed.

What a relay asks every second is not prepared: a plan made while the outbox was empty reads it from end to end.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
from sqlalchemy import Connection, Select, any_, case, delete, func, literal, select
from sqlalchemy.dialects.postgresql import insert

from durable.clock import Clock
from durable.schema import executions, outbox, workers, workflows
from durable.states import ExecutionState, WorkflowState
from durable.store.rows import Letter

TAKE_DUE = f"""
WITH due AS (
    SELECT execution_id, name, queue, priority, sends, due_at FROM durable.outbox
    WHERE due_at <= {{now}} ORDER BY due_at, priority, execution_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), found AS MATERIALIZED (
    SELECT due.*, (SELECT e.scheduled_for FROM durable.executions e
                   WHERE e.id = due.execution_id AND e.state = '{ExecutionState.SCHEDULED}') AS scheduled_for
    FROM due
), dropped AS (
    DELETE FROM durable.outbox
    WHERE execution_id = ANY(ARRAY(SELECT execution_id FROM found WHERE scheduled_for IS NULL))
), sent AS (
    UPDATE durable.outbox
    SET sends = least(sends + 1, 32000),
        due_at = {{now}} + least(%(again)s * power(2, least(sends, 20)), %(stuck)s)
    WHERE execution_id = ANY(ARRAY(SELECT execution_id FROM found WHERE scheduled_for IS NOT NULL))
)
SELECT execution_id, name, queue, CASE WHEN due_at <= scheduled_for THEN 0 ELSE least(sends + 1, 32000) END AS sends,
       scheduled_for < {{now}} - %(stuck)s AS stuck
FROM found WHERE scheduled_for IS NOT NULL ORDER BY due_at, priority, execution_id
"""
NEXT_DUE_IN = "SELECT min(due_at) - {now} FROM durable.outbox"


def take_due(
    conn: psycopg.Connection[Any], clock: Clock, *, limit: int, again: timedelta, stuck: timedelta
) -> list[Letter]:
    """Return messages that are due, in the order of their due times, and put off their next look.

    One that nobody has sent yet has no `sends`. A message is looked at again after `again`, twice that, and so on, at
    most `stuck`. Rows that other relays hold are passed over, and rows whose execution is gone are dropped.
    """
    values = {"limit": limit, "again": again, "stuck": stuck}
    rows = conn.execute(TAKE_DUE.format(now=clock.sql), values, prepare=False)
    return [
        Letter(execution_id, name, queue, sends=sends, regardless=late and sends > 1)
        for execution_id, name, queue, sends, late in rows
    ]


def next_due_in(conn: psycopg.Connection[Any], clock: Clock) -> timedelta | None:
    """Return how long it is until the relay must look, None if no message waits."""
    row = conn.execute(NEXT_DUE_IN.format(now=clock.sql), prepare=False).fetchone()
    return row and row[0]


def rearm_sent(conn: Connection, clock: Clock) -> int:
    """Have every message that was sent before sent again at once: the broker has lost them.

    Those that somebody's open transaction holds are passed over, and sent at their next look.
    """
    now = clock.now
    sent = select(outbox.c.execution_id).where(outbox.c.sends > 0, outbox.c.due_at > now)
    free = sent.order_by(outbox.c.execution_id).with_for_update(skip_locked=True)
    return conn.execute(outbox.update().where(outbox.c.execution_id.in_(free)).values(due_at=now, sends=0)).rowcount


def put_back(conn: Connection, clock: Clock, execution_id: UUID, *, wait: timedelta) -> None:
    """Have a message that is due, and that its receiver could do nothing with, sent again.

    Soon if there is a worker for it, which may find the receiver faster several times; else after a while that doubles.
    """
    able = select(workers.c.id).where(
        outbox.c.name == any_(workers.c.classes), outbox.c.queue == any_(workers.c.queues)
    )
    due = select(executions.c.id).where(executions.c.id == execution_id, executions.c.scheduled_for <= clock.now)
    patience = case((able.exists(), 1 + func.random()), else_=func.power(2, func.least(outbox.c.sends, 6)))
    conn.execute(
        outbox.update()
        .where(outbox.c.execution_id == execution_id, due.exists())
        .values(due_at=clock.now + func.make_interval(0, 0, 0, 0, 0, 0, wait.total_seconds() * patience))
    )


def rearm_lost(conn: Connection, clock: Clock, *, overdue: timedelta) -> int:
    """Write messages anew for executions that are overdue and have none, which only damage from outside leads to."""
    lost = (
        _messages(clock, timedelta())
        .where(executions.c.state == ExecutionState.SCHEDULED.value, executions.c.finished_at.is_(None))
        .where(executions.c.scheduled_for < clock.now - literal(overdue))
        .where(workflows.c.state == WorkflowState.READY.value)
        .where(~select(outbox.c.execution_id).where(outbox.c.execution_id == executions.c.id).exists())
    )
    added = insert(outbox).from_select(_COLUMNS, lost).on_conflict_do_nothing(index_elements=["execution_id"])
    return len(conn.execute(added.returning(outbox.c.execution_id)).all())


def arm(conn: Connection, clock: Clock, execution_id: UUID, *, look: timedelta) -> Letter:
    """Have a scheduled execution's message sent when it is due, and return it for the caller to send.

    `look` is how long the relay leaves a message that is due to the caller.
    """
    message = _messages(clock, look).where(executions.c.id == execution_id)
    conn.execute(insert(outbox).from_select(_COLUMNS, message).on_conflict_do_nothing(index_elements=["execution_id"]))
    due_in = func.greatest(executions.c.scheduled_for - clock.now, literal(timedelta()))
    row = conn.execute(
        select(workflows.c.name, workflows.c.queue, due_in.label("due_in"))
        .join_from(executions, workflows, workflows.c.id == executions.c.workflow_id)
        .where(executions.c.id == execution_id)
    ).one()
    return Letter(execution_id, row.name, row.queue, due_in=row.due_in)


def disarm(conn: Connection, execution_id: UUID) -> None:
    """Have no message sent for an execution."""
    conn.execute(delete(outbox).where(outbox.c.execution_id == execution_id))


_COLUMNS = ["execution_id", "name", "queue", "priority", "due_at"]


def _messages(clock: Clock, look: timedelta) -> Select[Any]:
    due = executions.c.scheduled_for
    due_at = case((due <= clock.now, clock.now + literal(look)), else_=due)
    return select(executions.c.id, workflows.c.name, workflows.c.queue, workflows.c.priority, due_at).join_from(
        executions, workflows, workflows.c.id == executions.c.workflow_id
    )

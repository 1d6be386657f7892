"""What is kept for how long, and what damage from outside leaves behind."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from psycopg import Connection

from durable.clock import Clock
from durable.states import WorkflowState

_DELETE = """
WITH old AS (
    SELECT id FROM durable.workflows WHERE ended_at < {now} - %(age)s
    ORDER BY ended_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
DELETE FROM durable.workflows w USING old WHERE w.id = old.id
"""

_PAUSE = f"""
UPDATE durable.workflows w SET state = '{WorkflowState.PAUSED}',
    reason = 'it was ready, but nothing was scheduled: resume() schedules its step again'
WHERE w.state = '{WorkflowState.READY}' AND w.created_at < {{now}} - %(age)s AND NOT EXISTS (
    SELECT FROM durable.executions e WHERE e.workflow_id = w.id AND e.finished_at IS NULL)
"""


def delete_ended(conn: Connection[Any], clock: Clock, *, age: timedelta, limit: int) -> int:
    """Delete a batch of workflows that ended long ago, with all that belongs to them."""
    return conn.execute(_DELETE.format(now=clock.sql), {"age": age, "limit": limit}).rowcount


def pause_stranded(conn: Connection[Any], clock: Clock, *, age: timedelta) -> int:
    """Pause workflows that are ready with nothing scheduled: nothing would ever move them."""
    return conn.execute(_PAUSE.format(now=clock.sql), {"age": age}).rowcount

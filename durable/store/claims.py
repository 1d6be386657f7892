"""The two statements of every step, claim and settle, on psycopg's own connection.

They find rows by comparing ids with a value, or with the one value of a subquery, and never by a join: where statistics
are from a time when nothing waited, Postgres takes the outbox for empty and would read it from end to end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from psycopg import Connection
from psycopg.rows import class_row, tuple_row

from durable.clock import Clock
from durable.ids import new_id
from durable.schema import quoted
from durable.states import (
    EXECUTION_MOVES,
    TERMINAL,
    WORKFLOW_MOVES,
    ExecutionState,
    StopRequest,
    WorkflowState,
)
from durable.store.rows import Claim, Letter, LostClaim, Settled
from durable.verdicts import Plan

_CLAIM = f"""
WITH held AS (
    SELECT id FROM durable.workflows
    WHERE id = (SELECT workflow_id FROM durable.executions WHERE id = %(execution)s)
      AND name = %(name)s
      AND state IN ({quoted(WORKFLOW_MOVES.origins(WorkflowState.PERFORMING))})
    FOR NO KEY UPDATE
), claimed AS (
    UPDATE durable.executions e
    SET state = '{ExecutionState.IN_PROGRESS}', claim = %(token)s, worker = %(worker)s,
        started_at = {{now}}, lease_until = {{now}} + (clock_timestamp() - statement_timestamp()) + %(lease)s
    WHERE e.id = %(execution)s AND e.workflow_id = (SELECT id FROM held)
      AND e.state IN ({quoted(EXECUTION_MOVES.origins(ExecutionState.IN_PROGRESS))})
      AND (e.scheduled_for <= {{now}} OR %(early)s)
      AND (e.crashes < %(suspicious)s OR %(alone)s)
    RETURNING e.*
), performing AS (
    UPDATE durable.workflows SET state = '{WorkflowState.PERFORMING}'
    WHERE id = (SELECT workflow_id FROM claimed)
    RETURNING *
), taken AS (
    DELETE FROM durable.outbox WHERE execution_id = (SELECT id FROM claimed)
)
SELECT c.id AS execution_id, c.claim AS token, w.id AS workflow_id, w.name, w.version, c.step, c.attempt,
       c.reattempts, c.crashes, c.idempotency_key, c.resume_input, c.scheduled_for, c.started_at,
       w.hero_type, w.hero_key, {{presence}} AS hero_present, w.queue, w.priority, w.unique_key, w.created_at,
       w.input, w.data
FROM claimed c JOIN performing w ON w.id = c.workflow_id
"""

_SETTLE = f"""
WITH held AS (
    SELECT id, stop_requested, stop_reason,
           CASE WHEN stop_requested = '{StopRequest.CANCEL}' THEN '{WorkflowState.CANCELED}'
                WHEN stop_requested = '{StopRequest.PAUSE}' AND %(state)s = '{WorkflowState.READY}'
                THEN '{WorkflowState.PAUSED}'
                ELSE %(state)s END AS next_state
    FROM durable.workflows
    WHERE id = %(workflow)s AND state = '{WorkflowState.PERFORMING}'
    FOR NO KEY UPDATE {{waiting}}
), ended AS (
    UPDATE durable.executions e
    SET state = %(execution_state)s, outcome = %(outcome)s, reason = %(ended_because)s, finished_at = {{now}},
        claim = NULL, lease_until = NULL,
        result = %(result)s::jsonb, error_class = %(error_class)s, error_message = %(error_message)s,
        error_traceback = %(error_traceback)s
    WHERE e.id = %(execution)s AND e.workflow_id = (SELECT id FROM held) AND e.claim = %(token)s
      AND e.state = '{ExecutionState.IN_PROGRESS}'
      AND (NOT %(expired)s OR e.lease_until < {{now}})
    RETURNING e.step, e.resume_input
), moved AS (
    UPDATE durable.workflows w
    SET state = held.next_state,
        step = %(step)s,
        reason = CASE WHEN held.next_state = %(state)s AND held.stop_requested IS DISTINCT FROM
                           '{StopRequest.CANCEL}' THEN %(reason)s ELSE held.stop_reason END,
        data = coalesce(%(data)s::jsonb, w.data),
        result = %(workflow_result)s::jsonb,
        ended_at = CASE WHEN held.next_state IN ({quoted(TERMINAL)}) THEN {{now}} END,
        stop_requested = NULL, stop_reason = NULL
    FROM held, ended
    WHERE w.id = %(workflow)s
    RETURNING w.id, w.state, w.name, w.queue, w.priority
), scheduled AS (
    INSERT INTO durable.executions
        (id, workflow_id, step, state, attempt, reattempts, crashes, idempotency_key, resume_input, scheduled_for)
    SELECT %(next_id)s::uuid, moved.id, %(next_step)s, '{ExecutionState.SCHEDULED}', %(attempt)s, %(reattempts)s,
           %(crashes)s, %(idempotency_key)s::uuid, CASE WHEN ended.step = %(next_step)s THEN ended.resume_input END,
           {{now}} + %(wait)s
    FROM moved, ended WHERE %(next_id)s::uuid IS NOT NULL AND moved.state NOT IN ({quoted(TERMINAL)})
    RETURNING id, workflow_id, scheduled_for
), sent AS (
    INSERT INTO durable.outbox (execution_id, name, queue, priority, due_at)
    SELECT s.id, moved.name, moved.queue, moved.priority, s.scheduled_for + %(look)s
    FROM scheduled s JOIN moved ON moved.id = s.workflow_id AND moved.state = '{WorkflowState.READY}'
)
SELECT moved.state, scheduled.id, moved.name, moved.queue
FROM moved LEFT JOIN scheduled ON moved.state = '{WorkflowState.READY}'
"""

_CRASHES = f"""
SELECT e.crashes FROM durable.executions e JOIN durable.workflows w ON w.id = e.workflow_id
WHERE e.id = %(execution)s AND e.state = '{ExecutionState.SCHEDULED}' AND w.state = '{WorkflowState.READY}'
  AND (e.scheduled_for <= {{now}} OR %(early)s)
"""

_LOST = """
WITH expired AS MATERIALIZED (
    SELECT * FROM durable.executions WHERE lease_until < {now}
)
SELECT e.id AS execution_id, e.claim AS token, w.id AS workflow_id, w.name, e.step, e.attempt, e.reattempts,
       e.crashes, e.idempotency_key, e.worker
FROM expired e JOIN durable.workflows w ON w.id = e.workflow_id
WHERE e.id > %(after)s
ORDER BY e.id LIMIT %(limit)s
"""


@dataclass(frozen=True)
class Terms:
    """On which terms a worker claims executions."""

    worker: str
    lease: timedelta
    suspicious: int
    """From how many crashes on an execution is only to be had by who runs it alone."""
    alone: bool = False
    early: bool = False


def claim(
    conn: Connection[Any],
    clock: Clock,
    execution_id: UUID,
    terms: Terms,
    *,
    name: str,
    presence: str = "NULL::boolean",
) -> Claim | None:
    """Take one scheduled execution; None if it is not to be had: gone, early, paused, or someone else's.

    `presence` is SQL over `w` that tells whether the hero is still there.
    """
    values = {"execution": execution_id, "name": name, "token": new_id(), **vars(terms)}
    with conn.cursor(row_factory=class_row(Claim)) as cursor:
        return cursor.execute(_CLAIM.format(now=clock.sql, presence=presence), values).fetchone()


def is_suspicious(conn: Connection[Any], clock: Clock, execution_id: UUID, terms: Terms) -> bool:
    """Tell whether an execution that could run now is only to be had by who runs it alone."""
    values = {"execution": execution_id, "early": terms.early}
    found = conn.execute(_CRASHES.format(now=clock.sql), values).fetchone()
    return found is not None and found[0] >= terms.suspicious


def settle(
    conn: Connection[Any],
    clock: Clock,
    held: Claim | LostClaim,
    plan: Plan,
    *,
    data: str | None = None,
    expired: bool = False,
    look: timedelta = timedelta(),
) -> Settled | None:
    """Write what an execution came to, and what follows; return where that leaves the workflow.

    None means the claim was lost, and nothing was written. With `expired`, only a claim whose lease ran out is ended,
    and only if nobody holds its workflow's row: whoever it was that died may have left a transaction behind.
    `look` is how long the relay leaves the message of what follows to the caller.
    """
    if not WORKFLOW_MOVES.allow(WorkflowState.PERFORMING, plan.workflow):
        raise AssertionError(f"no move from performing to {plan.workflow}")
    values = {**_ended(held, plan), **_moved(plan, data), **_scheduled(plan, look), "expired": expired}
    with conn.cursor(row_factory=tuple_row) as cursor:
        waiting = "SKIP LOCKED" if expired else ""
        row = cursor.execute(_SETTLE.format(now=clock.sql, waiting=waiting), values).fetchone()
    if row is None:
        return None
    state, next_id, name, queue = row
    due_in = plan.next.wait if plan.next else timedelta()
    return Settled(WorkflowState(state), None if next_id is None else Letter(next_id, name, queue, due_in=due_in))


def lost_claims(conn: Connection[Any], clock: Clock, *, after: UUID, limit: int) -> list[LostClaim]:
    """Return claims whose lease ran out, in key order from a key on."""
    with conn.cursor(row_factory=class_row(LostClaim)) as cursor:
        values = {"after": after, "limit": limit}
        return cursor.execute(_LOST.format(now=clock.sql), values, prepare=False).fetchall()


def left_by(conn: Connection[Any], held: Claim) -> Settled | None:
    """Return where a workflow stands, for a settle that does not know whether it was committed.

    The message of what follows is the relay's then.
    """
    found = conn.execute("SELECT state FROM durable.workflows WHERE id = %s", (held.workflow_id,)).fetchone()
    return None if found is None else Settled(WorkflowState(found[0]))


def _ended(held: Claim | LostClaim, plan: Plan) -> Mapping[str, object]:
    failure = plan.failure
    return {
        "workflow": held.workflow_id,
        "execution": held.execution_id,
        "token": held.token,
        "execution_state": plan.execution.value,
        "outcome": plan.outcome.value,
        "ended_because": plan.ended_because,
        "result": plan.result,
        "error_class": failure and failure.error_class,
        "error_message": failure and failure.message,
        "error_traceback": failure and failure.traceback,
    }


def _moved(plan: Plan, data: str | None) -> Mapping[str, object]:
    return {
        "state": plan.workflow.value,
        "step": plan.step,
        "reason": plan.reason,
        "data": data,
        "workflow_result": plan.workflow_result,
    }


def _scheduled(plan: Plan, look: timedelta) -> Mapping[str, object]:
    upcoming = plan.next
    next_id = None if upcoming is None else new_id()
    return {
        "next_id": next_id,
        "next_step": upcoming and upcoming.step,
        "attempt": upcoming and upcoming.attempt,
        "reattempts": upcoming and upcoming.reattempts,
        "crashes": upcoming and upcoming.crashes,
        "idempotency_key": (upcoming and upcoming.idempotency_key) or next_id,
        "wait": upcoming and upcoming.wait,
        "look": timedelta() if upcoming and upcoming.wait else look,
    }

"""How workflows are created: workflow, first execution and outbox row in one statement, for one or for many."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from uuid import UUID

from sqlalchemy import Connection, TextClause, select, text

from durable.clock import Clock
from durable.schema import workflows
from durable.states import ExecutionState, WorkflowState
from durable.store.rows import Birth, Inserted, Letter, Newborn, WorkflowRow

_INSERT = f"""
WITH given AS (
    SELECT * FROM unnest(
        CAST(:ids AS uuid[]), CAST(:execution_ids AS uuid[]), CAST(:hero_types AS text[]),
        CAST(:hero_keys AS text[]), CAST(:unique_keys AS text[]), CAST(:inputs AS text[])
    ) AS given (id, execution_id, hero_type, hero_key, unique_key, input)
), created AS (
    INSERT INTO durable.workflows (id, name, version, hero_type, hero_key, state, step, queue, priority, input, data,
                                   unique_key, unique_in, created_at, ended_at)
    SELECT id, CAST(:name AS text), CAST(:version AS integer), hero_type, hero_key, CAST(:state AS text),
           CAST(:step AS text), CAST(:queue AS text), CAST(:priority AS smallint), CAST(input AS jsonb),
           jsonb_build_object(), unique_key, CAST(:unique_in AS text[]), {{now}},
           CASE WHEN CAST(:step AS text) IS NULL THEN {{now}} END
    FROM given ORDER BY unique_key, id
    ON CONFLICT (name, slot) WHERE slot IS NOT NULL DO NOTHING
    RETURNING id, name, queue, priority, created_at
), scheduled AS (
    INSERT INTO durable.executions
        (id, workflow_id, step, state, attempt, reattempts, crashes, idempotency_key, scheduled_for)
    SELECT given.execution_id, created.id, CAST(:step AS text), '{ExecutionState.SCHEDULED}', 1, 0, 0,
           given.execution_id, {{now}} + CAST(:wait AS interval)
    FROM created JOIN given ON given.id = created.id WHERE CAST(:step AS text) IS NOT NULL
    RETURNING id, workflow_id, scheduled_for
), sent AS (
    INSERT INTO durable.outbox (execution_id, name, queue, priority, due_at)
    SELECT s.id, created.name, created.queue, created.priority, s.scheduled_for + CAST(:look AS interval)
    FROM scheduled s JOIN created ON created.id = s.workflow_id
)
SELECT array_agg(id) AS ids, min(created_at) AS created_at FROM created
"""


@cache
def _insert(now: str) -> TextClause:
    return text(_INSERT.format(now=now))


def first_state(birth: Birth) -> WorkflowState:
    """Return the state of a workflow when it is created: one with no steps is finished at once."""
    return WorkflowState.FINISHED if birth.step is None else WorkflowState.READY


def row_of(birth: Birth, newborn: Newborn, created_at: datetime) -> WorkflowRow:
    """Return the row that was inserted, without asking for it."""
    return WorkflowRow(
        id=newborn.id,
        name=birth.name,
        version=birth.version,
        hero_type=newborn.hero_type,
        hero_key=newborn.hero_key,
        state=first_state(birth),
        step=birth.step,
        reason=None,
        queue=birth.queue,
        priority=birth.priority,
        input=None if newborn.input is None else json.loads(newborn.input),
        data={},
        result=None,
        unique_key=newborn.unique_key,
        stop_requested=None,
        created_at=created_at,
        ended_at=created_at if birth.step is None else None,
    )


def insert(
    conn: Connection, clock: Clock, birth: Birth, newborns: Sequence[Newborn], *, look: timedelta = timedelta()
) -> Inserted:
    """Create workflows, all whose slot is free; `look` is how long the relay leaves their messages to the caller."""
    values = {
        "ids": [n.id for n in newborns],
        "execution_ids": [n.execution_id for n in newborns],
        "hero_types": [n.hero_type for n in newborns],
        "hero_keys": [n.hero_key for n in newborns],
        "unique_keys": [n.unique_key for n in newborns],
        "inputs": [n.input for n in newborns],
        "name": birth.name,
        "version": birth.version,
        "queue": birth.queue,
        "priority": birth.priority,
        "step": birth.step,
        "wait": birth.wait,
        "look": timedelta() if birth.wait else look,
        "state": first_state(birth).value,
        "unique_in": birth.unique_in and [state.value for state in birth.unique_in],
    }
    row = conn.execute(_insert(clock.sql), values).one()
    return Inserted(frozenset(row.ids or ()), row.created_at)


def letter_of(birth: Birth, newborn: Newborn) -> Letter | None:
    """Return the message of a created workflow's first execution."""
    if birth.step is None:
        return None
    return Letter(newborn.execution_id, birth.name, birth.queue, due_in=birth.wait)


def holder(conn: Connection, name: str, unique_key: str) -> UUID | None:
    """Return the workflow that occupies a slot."""
    query = select(workflows.c.id).where(workflows.c.name == name, workflows.c.slot == unique_key)
    return conn.execute(query).scalar()

"""Executions: history, the live one, and the verbs' ways to schedule and end one."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, Select, insert, literal, select, update

from durable.clock import Clock
from durable.ids import new_id
from durable.schema import executions
from durable.states import LIVE, ExecutionState, Outcome
from durable.store.moves import moving_execution
from durable.store.rows import Execution
from durable.verdicts import Next

_COLUMNS = [executions.c[name] for name in Execution.__dataclass_fields__]


def history(conn: Connection, workflow_id: UUID) -> list[Execution]:
    """Return all executions of a workflow, in order."""
    query = _of(workflow_id).order_by(executions.c.seq)
    return [_row(row) for row in conn.execute(query)]


def live(conn: Connection, workflow_id: UUID) -> Execution | None:
    """Return the execution that is scheduled, waiting or in progress."""
    row = conn.execute(_of(workflow_id).where(executions.c.state.in_(_LIVE))).one_or_none()
    return None if row is None else _row(row)


def last(conn: Connection, workflow_id: UUID, step: str) -> Execution | None:
    """Return the latest execution of a step."""
    query = _of(workflow_id).where(executions.c.step == step).order_by(executions.c.seq.desc()).limit(1)
    row = conn.execute(query).one_or_none()
    return None if row is None else _row(row)


def results(conn: Connection, workflow_id: UUID) -> dict[str, Any]:
    """Return what the completed steps returned, by name; the latest where a step completed twice."""
    query = (
        select(executions.c.step, executions.c.result)
        .where(executions.c.workflow_id == workflow_id, executions.c.state == ExecutionState.COMPLETED.value)
        .where(executions.c.outcome == Outcome.SUCCESS.value)
        .order_by(executions.c.seq)
    )
    return {row.step: row.result for row in conn.execute(query)}


def schedule(conn: Connection, clock: Clock, workflow_id: UUID, upcoming: Next, *, resume_input: object = None) -> UUID:
    """Insert a scheduled execution and return its id."""
    execution_id = new_id()
    conn.execute(
        insert(executions).values(
            id=execution_id,
            workflow_id=workflow_id,
            step=upcoming.step,
            state=ExecutionState.SCHEDULED.value,
            attempt=upcoming.attempt,
            reattempts=upcoming.reattempts,
            crashes=upcoming.crashes,
            idempotency_key=upcoming.idempotency_key or execution_id,
            resume_input=resume_input,
            scheduled_for=clock.now + literal(upcoming.wait),
        )
    )
    return execution_id


def end_pending(
    conn: Connection,
    clock: Clock,
    execution_id: UUID,
    to: ExecutionState,
    outcome: Outcome,
    *,
    reason: str | None = None,
) -> None:
    """End an execution that no worker holds."""
    ended = conn.execute(
        moving_execution(to)
        .where(executions.c.id == execution_id, executions.c.claim.is_(None))
        .values(outcome=outcome.value, reason=reason, finished_at=clock.now)
    )
    if ended.rowcount != 1:
        raise AssertionError(f"execution {execution_id} cannot become {to}")


def record_skipped(
    conn: Connection, clock: Clock, workflow_id: UUID, step: str, *, attempt: int, reason: str | None
) -> None:
    """Write into the history that a step which had stopped the workflow was passed over."""
    execution_id = new_id()
    conn.execute(
        insert(executions).values(
            id=execution_id,
            workflow_id=workflow_id,
            step=step,
            state=ExecutionState.SKIPPED.value,
            outcome=Outcome.SKIPPED.value,
            reason=reason,
            attempt=attempt,
            reattempts=0,
            crashes=0,
            idempotency_key=execution_id,
            scheduled_for=clock.now,
            finished_at=clock.now,
        )
    )


def give_input(conn: Connection, execution_id: UUID, resume_input: object) -> None:
    """Leave a caller's input for the step that will run."""
    conn.execute(update(executions).where(executions.c.id == execution_id).values(resume_input=resume_input))


_LIVE = [state.value for state in LIVE]


def _of(workflow_id: UUID) -> Select[Any]:
    return select(*_COLUMNS).where(executions.c.workflow_id == workflow_id)


def _row(row: Row[Any]) -> Execution:
    values = dict(row._mapping)
    values["state"] = ExecutionState(values["state"])
    outcome = values["outcome"]
    values["outcome"] = None if outcome is None else Outcome(outcome)
    return Execution(**values)

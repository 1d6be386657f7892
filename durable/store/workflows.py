"""Workflows: reading them, locking them, moving them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, Select, func, select, update

from durable.clock import Clock
from durable.schema import workflows
from durable.states import ONGOING, TERMINAL, StopRequest, WorkflowState
from durable.store.moves import moving_workflow
from durable.store.rows import WorkflowRow

_COLUMNS = [workflows.c[name] for name in WorkflowRow.__dataclass_fields__]


def get(conn: Connection, workflow_id: UUID) -> WorkflowRow | None:
    """Return one workflow."""
    return _one(conn, select(*_COLUMNS).where(workflows.c.id == workflow_id))


def lock(conn: Connection, workflow_id: UUID) -> WorkflowRow | None:
    """Return one workflow as it is now, and keep it so until the transaction ends."""
    query = select(*_COLUMNS).where(workflows.c.id == workflow_id).with_for_update(key_share=True)
    return _one(conn, query)


def find(
    conn: Connection,
    *,
    names: Iterable[str] | None = None,
    states: Iterable[WorkflowState] | None = None,
    hero: tuple[str, str] | None = None,
    limit: int,
    after: UUID | None = None,
) -> list[WorkflowRow]:
    """Return workflows, newest first; `after` is the id of the last one of the page before."""
    query = _filtered(select(*_COLUMNS), names=names, states=states, hero=hero)
    if after is not None:
        query = query.where(workflows.c.id < after)
    return [_row(row) for row in conn.execute(query.order_by(workflows.c.id.desc()).limit(limit))]


def count(
    conn: Connection,
    *,
    names: Iterable[str] | None = None,
    states: Iterable[WorkflowState] | None = None,
    hero: tuple[str, str] | None = None,
) -> int:
    """Return how many workflows there are."""
    query = _filtered(select(func.count()).select_from(workflows), names=names, states=states, hero=hero)
    return int(conn.execute(query).scalar_one())


def ongoing_of(conn: Connection, name: str, hero: tuple[str, str]) -> WorkflowRow | None:
    """Return the newest ongoing workflow of a class for a hero."""
    found = find(conn, names=[name], states=ONGOING, hero=hero, limit=1)
    return found[0] if found else None


def move(
    conn: Connection,
    clock: Clock,
    workflow_id: UUID,
    to: WorkflowState,
    *,
    step: str | None,
    reason: str | None = None,
    result: object = None,
) -> None:
    """Move a locked workflow to a state."""
    moved = conn.execute(
        moving_workflow(to)
        .where(workflows.c.id == workflow_id)
        .values(
            step=step,
            reason=reason,
            result=result,
            ended_at=clock.now if to in TERMINAL else None,
            stop_requested=None,
            stop_reason=None,
        )
    )
    if moved.rowcount != 1:
        raise AssertionError(f"workflow {workflow_id} cannot move to {to}")


def request_stop(conn: Connection, workflow_id: UUID, request: StopRequest, reason: str | None) -> None:
    """Leave word for the running step's settle."""
    conn.execute(
        update(workflows)
        .where(workflows.c.id == workflow_id, workflows.c.state == WorkflowState.PERFORMING.value)
        .values(stop_requested=request.value, stop_reason=reason)
    )


def _filtered(
    query: Select[Any],
    *,
    names: Iterable[str] | None,
    states: Iterable[WorkflowState] | None,
    hero: tuple[str, str] | None,
) -> Select[Any]:
    if names is not None:
        query = query.where(workflows.c.name.in_(list(names)))
    if states is not None:
        query = query.where(workflows.c.state.in_([state.value for state in states]))
    if hero is not None:
        query = query.where(workflows.c.hero_type == hero[0], workflows.c.hero_key == hero[1])
    return query


def _one(conn: Connection, query: Select[Any]) -> WorkflowRow | None:
    row = conn.execute(query).one_or_none()
    return None if row is None else _row(row)


def _row(row: Row[Any]) -> WorkflowRow:
    values = dict(row._mapping)
    values["state"] = WorkflowState(values["state"])
    stop = values["stop_requested"]
    values["stop_requested"] = None if stop is None else StopRequest(stop)
    return WorkflowRow(**values)

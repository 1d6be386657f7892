"""The JSON documents that programs read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from durable.store.rows import AuditEntry, Execution, WorkflowRow

Document = dict[str, Any]


def page(rows: Sequence[WorkflowRow], *, more: bool) -> Document:
    """Return a page of workflows; `after` is what to ask for the next one with."""
    return {"workflows": [summary(row) for row in rows], "after": rows[-1].id if more else None}


def summary(row: WorkflowRow) -> Document:
    """Return what is short of a workflow."""
    return {
        "id": row.id,
        "class": row.name,
        "version": row.version,
        "hero": None if row.hero_type is None else {"type": row.hero_type, "key": row.hero_key},
        "state": row.state,
        "step": row.step,
        "reason": row.reason,
        "queue": row.queue,
        "priority": row.priority,
        "created_at": row.created_at,
        "ended_at": row.ended_at,
    }


def workflow(row: WorkflowRow, history: Sequence[Execution], entries: Sequence[AuditEntry]) -> Document:
    """Return everything of a workflow."""
    return {
        **summary(row),
        "stop_requested": row.stop_requested,
        "unique_key": row.unique_key,
        "input": row.input,
        "data": row.data,
        "result": row.result,
        "history": [_execution(execution) for execution in history],
        "audit": entries,
    }


def _execution(execution: Execution) -> Document:
    return {key: value for key, value in asdict(execution).items() if key != "workflow_id"}

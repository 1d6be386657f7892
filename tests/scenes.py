"""Ways to bring a workflow into each of its states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from sqlalchemy import text

from durable import Workflow, verdicts
from durable.runtime import Runtime
from durable.states import WorkflowState
from durable.store import claims
from durable.store.claims import Terms
from durable.store.rows import Claim
from durable.testing import perform_next_step


def claim(runtime: Runtime, workflow: Workflow[Any], *, early: bool = True) -> Claim | None:
    """Take a workflow's scheduled execution as a worker would, without running it."""
    scheduled = workflow.current_execution
    assert scheduled is not None
    return claim_id(runtime, workflow.name, scheduled.id, early=early)


def claim_id(
    runtime: Runtime, name: str, execution_id: UUID, *, early: bool = False, worker: str = "a test"
) -> Claim | None:
    """Take an execution by its id."""
    terms = Terms(worker, runtime.settings.lost_worker_after, suspicious=99, early=early)
    with runtime.hot() as conn:
        return claims.claim(conn, runtime.clock, execution_id, terms, name=name)


def settle(
    runtime: Runtime, workflow_class: type[Workflow[Any]], held: Claim, *, expired: bool = False
) -> WorkflowState | None:
    """End a claimed execution as completed, as its worker would."""
    plan = verdicts.plan(verdicts.completed(None), held, workflow_class.definition.after(held.step))
    with runtime.hot() as conn:
        settled = claims.settle(conn, runtime.clock, held, plan, expired=expired)
    return None if settled is None else settled.state


def _performing(runtime: Runtime, workflow: Workflow[Any]) -> None:
    assert claim(runtime, workflow) is not None


def _waiting(runtime: Runtime, workflow: Workflow[Any]) -> None:
    _force(runtime, workflow, "waiting", "waiting")


def _compensating(runtime: Runtime, workflow: Workflow[Any]) -> None:
    workflow.cancel()
    _force(runtime, workflow, "compensating", None)


def _rolled_back(runtime: Runtime, workflow: Workflow[Any]) -> None:
    workflow.cancel()
    _force(runtime, workflow, "rolled_back", None)


def _force(runtime: Runtime, workflow: Workflow[Any], state: str, execution_state: str | None) -> None:
    with runtime.engine.begin() as conn:
        values = {"id": workflow.id, "state": state, "execution": execution_state}
        ended = "ended_at" if state == "rolled_back" else "NULL"
        conn.execute(text(f"UPDATE durable.workflows SET state = :state, ended_at = {ended} WHERE id = :id"), values)
        if execution_state:
            conn.execute(text("DELETE FROM durable.outbox"))
            conn.execute(text("UPDATE durable.executions SET state = :execution WHERE workflow_id = :id"), values)


BRING_TO: dict[str, Callable[[Runtime, Workflow[Any]], object]] = {
    "ready": lambda runtime, workflow: None,
    "performing": _performing,
    "waiting": _waiting,
    "paused": lambda runtime, workflow: workflow.pause("held"),
    "compensating": _compensating,
    "finished": lambda runtime, workflow: workflow.skip().skip().skip(),
    "canceled": lambda runtime, workflow: workflow.cancel("held"),
    "failed": lambda runtime, workflow: perform_next_step(workflow),
    "rolled_back": _rolled_back,
}

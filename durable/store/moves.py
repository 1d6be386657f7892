"""The one helper through which a state changes outside of claim and settle."""

from __future__ import annotations

from sqlalchemy import Update, update

from durable.schema import executions, workflows
from durable.states import EXECUTION_MOVES, WORKFLOW_MOVES, ExecutionState, WorkflowState


def moving_workflow(to: WorkflowState) -> Update:
    """Begin an update of workflows to a state, guarded by the states it may come from."""
    return update(workflows).where(workflows.c.state.in_(WORKFLOW_MOVES.origins(to))).values(state=to.value)


def moving_execution(to: ExecutionState) -> Update:
    """Begin an update of executions to a state, guarded by the states it may come from."""
    return update(executions).where(executions.c.state.in_(EXECUTION_MOVES.origins(to))).values(state=to.value)

"""Helpers for the tests of workflows: run steps here and now, move the clock, look at what happened.

They need no fixture once `durable.configure()` ran. They ignore due times, and a step's error is recorded, not raised.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar

from durable import executor, runtime, verbs
from durable.errors import DurableError
from durable.states import ExecutionState, WorkflowState
from durable.store import executions, workflows
from durable.store.rows import Execution, WorkflowRow
from durable.workflow import Workflow

__all__ = [
    "assert_step_executed",
    "assert_workflow_state",
    "perform_next_step",
    "perform_step_inline",
    "reset_clock",
    "speedrun",
    "travel",
]

W = TypeVar("W", bound=Workflow[Any])


def speedrun(workflow: W, *, max_steps: int = 1000) -> W:
    """Run a workflow until it ends or stops, waits ignored; raise if it goes on after `max_steps` executions."""
    for _ in range(max_steps):
        if _committed(workflow).state is not WorkflowState.READY:
            return workflow.refresh()
        perform_next_step(workflow)
    if workflow.refresh().state is WorkflowState.READY:
        raise DurableError(f"{workflow!r} still goes on after {max_steps} steps: does it loop?")
    return workflow


def perform_next_step(workflow: W) -> W:
    """Run the execution that is scheduled, whenever it is due."""
    row = _committed(workflow)
    scheduled = _live(workflow)
    if row.state is not WorkflowState.READY or scheduled is None:
        raise DurableError(f"{workflow!r} has no step to perform: it is {row.state}")
    executor.perform(runtime.current(), type(workflow), scheduled.id, early=True)
    return workflow.refresh()


def perform_step_inline(workflow: W, step: str) -> W:
    """Run one step by name, in the place of whatever is scheduled."""
    now = runtime.current()
    _committed(workflow)
    with now.transaction() as conn:
        row = workflows.lock(conn, workflow.id)
        assert row is not None
        if row.state is WorkflowState.PERFORMING:
            raise DurableError(f"{workflow!r} is performing a step already")
        verbs.begin_at(verbs.Scene(conn, now.clock, row, type(workflow).definition), "perform", step)
    return perform_next_step(workflow)


def travel(**length: float) -> None:
    """Move the clock, as in `travel(days=3)`; journeys add up until `reset_clock()`."""
    runtime.current().clock.travel(timedelta(**length))


def reset_clock() -> None:
    """Come back to the present."""
    runtime.current().clock.reset()


def assert_step_executed(workflow: Workflow[Any], step: str, *, state: str = "completed") -> Execution:
    """Assert that a step's latest execution ended in a state, and return it."""
    wanted = ExecutionState(state)
    history = workflow.history
    of_step = [execution for execution in history if execution.step == step]
    told = ", ".join(f"{execution.step} {execution.state}" for execution in history) or "nothing yet"
    assert of_step, f"step {step!r} was not executed; the history is: {told}"
    latest = of_step[-1]
    assert latest.state is wanted, f"step {step!r} is {latest.state}, not {wanted}; the history is: {told}"
    return latest


def assert_workflow_state(workflow: Workflow[Any], state: str) -> None:
    """Assert where a workflow stands."""
    wanted = WorkflowState(state)
    row = workflow.refresh()
    why = f" ({row.reason})" if row.reason else ""
    assert row.state is wanted, f"{workflow!r} is {row.state}{why}, not {wanted}"


def _committed(workflow: Workflow[Any]) -> WorkflowRow:
    with runtime.current().statement() as conn:
        row = workflows.get(conn, workflow.id)
    if row is None or _has_uncommitted_verb(workflow, row):
        raise DurableError(f"{workflow!r} is not so in the database: commit its session first")
    return row


def _has_uncommitted_verb(workflow: Workflow[Any], committed: WorkflowRow) -> bool:
    place = workflow._place
    if place is None or not place.open:
        return False
    return workflows.get(place.connection(), workflow.id) != committed


def _live(workflow: Workflow[Any]) -> Execution | None:
    with runtime.current().statement() as conn:
        return executions.live(conn, workflow.id)

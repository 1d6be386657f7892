"""Rows as values: what the store returns and takes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from durable.states import ExecutionState, Outcome, StopRequest, WorkflowState


@dataclass(frozen=True)
class WorkflowRow:
    """One workflow."""

    id: UUID
    name: str
    version: int
    hero_type: str | None
    hero_key: str | None
    state: WorkflowState
    step: str | None
    reason: str | None
    queue: str
    priority: int
    input: Any
    data: dict[str, Any]
    result: Any
    unique_key: str | None
    stop_requested: StopRequest | None
    created_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True)
class Execution:
    """One attempt at a step."""

    id: UUID
    workflow_id: UUID
    step: str
    state: ExecutionState
    outcome: Outcome | None
    reason: str | None
    attempt: int
    reattempts: int
    crashes: int
    idempotency_key: UUID
    resume_input: Any
    scheduled_for: datetime
    started_at: datetime | None
    finished_at: datetime | None
    worker: str | None
    result: Any
    error_class: str | None
    error_message: str | None
    error_traceback: str | None


@dataclass(frozen=True)
class AuditEntry:
    """One verb that was used on a workflow."""

    at: datetime
    verb: str
    by: str | None
    reason: str | None


@dataclass(frozen=True)
class Claim:
    """A worker's right to one execution, with everything the step needs."""

    execution_id: UUID
    token: UUID
    workflow_id: UUID
    name: str
    version: int
    step: str
    attempt: int
    reattempts: int
    crashes: int
    idempotency_key: UUID
    resume_input: Any
    scheduled_for: datetime
    started_at: datetime
    hero_type: str | None
    hero_key: str | None
    hero_present: bool | None
    queue: str
    priority: int
    unique_key: str | None
    created_at: datetime
    input: Any
    data: dict[str, Any]

    @property
    def workflow(self) -> WorkflowRow:
        """The workflow as it is while this claim holds."""
        return WorkflowRow(
            id=self.workflow_id,
            name=self.name,
            version=self.version,
            hero_type=self.hero_type,
            hero_key=self.hero_key,
            state=WorkflowState.PERFORMING,
            step=self.step,
            reason=None,
            queue=self.queue,
            priority=self.priority,
            input=self.input,
            data=self.data,
            result=None,
            unique_key=self.unique_key,
            stop_requested=None,
            created_at=self.created_at,
            ended_at=None,
        )


@dataclass(frozen=True)
class LostClaim:
    """A claim whose worker is gone, or was not heard of for the length of its lease."""

    execution_id: UUID
    token: UUID
    workflow_id: UUID
    name: str
    step: str
    attempt: int
    reattempts: int
    crashes: int
    idempotency_key: UUID
    worker: str | None


@dataclass(frozen=True)
class Letter:
    """A message to be sent: that an execution can be run, to the actor of its workflow's class."""

    execution_id: UUID
    name: str
    queue: str
    due_in: timedelta = timedelta()
    sends: int = 0
    regardless: bool = False


@dataclass(frozen=True)
class Settled:
    """Where a settle has left a workflow, and the message of what follows."""

    state: WorkflowState
    letter: Letter | None = None


@dataclass(frozen=True)
class Birth:
    """What is the same for all workflows that one statement creates."""

    name: str
    version: int
    queue: str
    priority: int
    step: str | None
    wait: timedelta
    unique_in: tuple[WorkflowState, ...] | None


@dataclass(frozen=True)
class Inserted:
    """The workflows that one statement created, and when."""

    ids: frozenset[UUID]
    created_at: datetime


@dataclass(frozen=True)
class Newborn:
    """What is each created workflow's own."""

    id: UUID
    execution_id: UUID
    hero_type: str | None
    hero_key: str | None
    unique_key: str | None
    input: str | None

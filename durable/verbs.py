"""The verbs from outside. Each locks the workflow's row first, so of two callers one sees what the other did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from durable.clock import Clock
from durable.errors import (
    AlreadyOngoing,
    ClassNotLoaded,
    InvalidTransition,
    StepNotDefined,
    WorkflowNotFound,
)
from durable.states import ONGOING, TERMINAL, ExecutionState, Outcome, StopRequest, WorkflowState
from durable.steps import Definition, Step
from durable.store import audit, births, executions, outbox, workflows
from durable.store.rows import Execution, Letter, WorkflowRow
from durable.verdicts import Next

ALLOWED: dict[str, tuple[WorkflowState, ...]] = {
    "pause": (WorkflowState.READY, WorkflowState.WAITING, WorkflowState.PERFORMING),
    "resume": (WorkflowState.PAUSED, WorkflowState.FAILED),
    "skip": (WorkflowState.PAUSED, WorkflowState.READY, WorkflowState.WAITING),
    "cancel": tuple(state for state in ONGOING if state is not WorkflowState.COMPENSATING),
    "retry": (
        WorkflowState.FAILED,
        WorkflowState.CANCELED,
        WorkflowState.PAUSED,
        WorkflowState.FINISHED,
    ),
}


@dataclass(frozen=True)
class Scene:
    """A locked workflow and what a verb needs to act on it."""

    conn: Connection
    clock: Clock
    row: WorkflowRow
    definition: Definition | None
    look: timedelta = timedelta()
    letters: list[Letter] = field(default_factory=list)

    @property
    def id(self) -> UUID:
        """The workflow."""
        return self.row.id

    def live(self) -> Execution | None:
        """Return the execution that waits to run, if there is one."""
        return executions.live(self.conn, self.id)

    def steps(self, verb: str) -> Definition:
        """Return the class's definition, which this verb cannot do without."""
        if self.definition is None:
            raise ClassNotLoaded(self.row.name, verb)
        return self.definition

    def move(self, to: WorkflowState, *, step: str | None, reason: str | None = None) -> None:
        """Move the workflow, or raise `AlreadyOngoing` if its slot was taken meanwhile."""
        with _slot(self.conn, self.row):
            workflows.move(self.conn, self.clock, self.id, to, step=step, reason=reason)

    def arm(self, execution_id: UUID) -> None:
        """Have an execution's message sent when it is due."""
        self.letters.append(outbox.arm(self.conn, self.clock, execution_id, look=self.look))

    def refuse(self, verb: str, why: str) -> InvalidTransition:
        """Return the error for a verb that does not apply."""
        return InvalidTransition(self.id, verb, self.row.state, why)


Act = Callable[[Scene], None]


@dataclass(frozen=True)
class Acted:
    """What a verb led to: the row as it is now, and the messages to send once that is committed."""

    row: WorkflowRow
    letters: list[Letter]


def act(
    conn: Connection,
    clock: Clock,
    workflow_id: UUID,
    definition: Definition | None,
    verb: str,
    do: Act,
    *,
    by: str | None,
    reason: str | None,
    look: timedelta = timedelta(),
) -> Acted:
    """Do a verb under the workflow's lock, keep who and why, and return what came of it.

    `look` is how long the relay leaves the messages that are due to the caller.
    """
    row = workflows.lock(conn, workflow_id)
    if row is None:
        raise WorkflowNotFound(workflow_id)
    scene = Scene(conn, clock, row, definition, look)
    if row.state not in ALLOWED[verb]:
        raise scene.refuse(verb, f"this goes while it is {', '.join(ALLOWED[verb])}")
    do(scene)
    audit.record(conn, clock, workflow_id, verb, by=by, reason=reason)
    after = workflows.get(conn, workflow_id)
    assert after is not None
    return Acted(after, scene.letters)


def pause(reason: str | None) -> Act:
    """Stop before the next step; its due time goes on."""

    def do(scene: Scene) -> None:
        said = reason or "paused by a caller"
        if scene.row.state is WorkflowState.PERFORMING:
            _request(scene, "pause", StopRequest.PAUSE, said)
            return
        live = scene.live()
        if live is not None:
            outbox.disarm(scene.conn, live.id)
        scene.move(WorkflowState.PAUSED, step=scene.row.step, reason=said)

    return do


def cancel(reason: str | None) -> Act:
    """End the workflow; a running step is interrupted, and nothing follows it."""

    def do(scene: Scene) -> None:
        if scene.row.state is WorkflowState.PERFORMING:
            _request(scene, "cancel", StopRequest.CANCEL, reason)
            return
        _drop_live(scene, ExecutionState.CANCELED, Outcome.CANCELED, reason)
        scene.move(WorkflowState.CANCELED, step=scene.row.step, reason=reason)

    return do


def resume(at: str | None, resume_input: Any) -> Act:
    """Go on: with the execution that is scheduled, or with a new one of the step that stopped."""

    def do(scene: Scene) -> None:
        if at is not None:
            _check_step(scene, "resume", at)
            _drop_live(scene, ExecutionState.CANCELED, Outcome.REPLACED)
        live = scene.live()
        if live is not None:
            _release(scene, live, resume_input)
        elif at is None and scene.row.step is None:
            scene.move(WorkflowState.FINISHED, step=None)
        else:
            _begin(scene, _again(scene, at or str(scene.row.step)), resume_input)

    return do


def skip(reason: str | None) -> Act:
    """Pass over the step that is pending or that stopped the workflow."""

    def do(scene: Scene) -> None:
        definition = scene.steps("skip")
        live = scene.live()
        step = live.step if live else scene.row.step
        if step is None:
            raise scene.refuse("skip", "there is no step left to skip, resume() finishes it")
        if live is None:
            previous = executions.last(scene.conn, scene.id, step)
            attempt = previous.attempt + 1 if previous else 1
            executions.record_skipped(scene.conn, scene.clock, scene.id, step, attempt=attempt, reason=reason)
        _drop_live(scene, ExecutionState.SKIPPED, Outcome.SKIPPED, reason)
        following = _after(scene, definition, step)
        if following is None:
            scene.move(WorkflowState.FINISHED, step=None)
        else:
            _begin(scene, Next(following.name, wait=following.wait), None)

    return do


def retry(from_step: str | None) -> Act:
    """Run again from a step on; what happened before stays in the history."""

    def do(scene: Scene) -> None:
        definition = scene.steps("retry")
        first = definition.first
        step = from_step or scene.row.step or (first.name if first else None)
        if step is None:
            raise scene.refuse("retry", "its class has no steps")
        begin_at(scene, "retry", step)

    return do


def begin_at(scene: Scene, verb: str, step: str) -> None:
    """Put a step in the place of whatever is pending."""
    _check_step(scene, verb, step)
    _drop_live(scene, ExecutionState.CANCELED, Outcome.REPLACED)
    _begin(scene, Next(step), None)


def _request(scene: Scene, verb: str, request: StopRequest, reason: str | None) -> None:
    asked = scene.row.stop_requested
    if asked is request or asked is StopRequest.CANCEL:
        raise scene.refuse(verb, f"a {asked} has been asked for, which is done {asked.when}")
    workflows.request_stop(scene.conn, scene.id, request, reason)


def _drop_live(scene: Scene, to: ExecutionState, outcome: Outcome, reason: str | None = None) -> None:
    live = scene.live()
    if live is not None:
        executions.end_pending(scene.conn, scene.clock, live.id, to, outcome, reason=reason)
        outbox.disarm(scene.conn, live.id)


def _release(scene: Scene, live: Execution, resume_input: Any) -> None:
    """Let a pending execution run when it is due."""
    if resume_input is not None:
        executions.give_input(scene.conn, live.id, resume_input)
    if live.state is ExecutionState.WAITING:
        scene.move(WorkflowState.WAITING, step=live.step)
        return
    scene.move(WorkflowState.READY, step=live.step)
    scene.arm(live.id)


def _begin(scene: Scene, upcoming: Next, resume_input: Any) -> None:
    """Schedule an execution of a workflow that has none, and make the workflow ready."""
    scene.move(WorkflowState.READY, step=upcoming.step)
    execution_id = executions.schedule(scene.conn, scene.clock, scene.id, upcoming, resume_input=resume_input)
    scene.arm(execution_id)


@contextmanager
def _slot(conn: Connection, row: WorkflowRow) -> Iterator[None]:
    """Take the unique slot again, for a workflow that may have left it; the caller's transaction survives a refusal."""
    if row.unique_key is None or row.state not in (WorkflowState.PAUSED, *TERMINAL):
        yield
        return
    try:
        with conn.begin_nested():
            yield
    except IntegrityError:
        holder = births.holder(conn, row.name, row.unique_key)
        if holder is None:
            raise
        raise AlreadyOngoing(row.name, row.unique_key, holder) from None


def _again(scene: Scene, step: str) -> Next:
    """Return another attempt of a step; only the step that stopped keeps its count and its key."""
    previous = executions.last(scene.conn, scene.id, step) if step == scene.row.step else None
    if previous is None:
        return Next(step)
    return Next(step, attempt=previous.attempt + 1, idempotency_key=previous.idempotency_key)


def _check_step(scene: Scene, verb: str, name: str) -> None:
    definition = scene.steps(verb)
    found = definition.find(name)
    if found is None or found.removed:
        raise StepNotDefined(scene.row.name, name, definition.names)


def _after(scene: Scene, definition: Definition, name: str) -> Step | None:
    """Return the step after this one; where the code has lost it, after the last one before it that is still there."""
    if definition.find(name) is not None:
        return definition.after(name)
    passed = [e.step for e in executions.history(scene.conn, scene.id) if definition.find(e.step) is not None]
    return definition.after(passed[-1]) if passed else definition.first

"""What the end of an execution means (a verdict), and what is to be written for it (a plan)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Literal, Protocol
from uuid import UUID

from durable.failures import Failure, readable
from durable.policies import Decision
from durable.states import ExecutionState, Outcome, WorkflowState


class Course(StrEnum):
    """Where the workflow goes from here."""

    ON = "on"
    AGAIN = "again"
    PAUSE = "pause"
    PAUSE_BEFORE_NEXT = "pause_before_next"
    FINISH = "finish"
    CANCEL = "cancel"
    FAIL = "fail"


@dataclass(frozen=True)
class Verdict:
    """How an execution ended and what that means for its workflow."""

    execution: ExecutionState
    outcome: Outcome
    course: Course
    reason: str | None = None
    wait: timedelta = timedelta()
    result: str | None = None
    workflow_result: str | None = None
    failure: Failure | None = None
    counts_as: Literal["reattempt", "crash", "nothing"] | None = None
    same_key: bool = False


def completed(result: str | None) -> Verdict:
    """The body returned."""
    return Verdict(ExecutionState.COMPLETED, Outcome.SUCCESS, Course.ON, result=result)


def canceled(reason: str | None) -> Verdict:
    """The body, or a condition, canceled the workflow."""
    return Verdict(ExecutionState.CANCELED, Outcome.CANCELED, Course.CANCEL, reason=reason)


def paused(reason: str | None, then: Literal["again", "next"]) -> Verdict:
    """The body paused the workflow."""
    if then == "next":
        return Verdict(ExecutionState.COMPLETED, Outcome.PAUSED, Course.PAUSE_BEFORE_NEXT, reason=reason)
    return Verdict(ExecutionState.CANCELED, Outcome.PAUSED, Course.PAUSE, reason=reason)


def reattempted(wait: timedelta) -> Verdict:
    """The body asked to be run again."""
    return Verdict(ExecutionState.COMPLETED, Outcome.REATTEMPTED, Course.AGAIN, wait=wait)


def skipped(reason: str | None) -> Verdict:
    """The step does not apply."""
    return Verdict(ExecutionState.SKIPPED, Outcome.SKIPPED, Course.ON, reason=reason)


def finished(result: str | None) -> Verdict:
    """The body ended the workflow early."""
    return Verdict(ExecutionState.COMPLETED, Outcome.FINISHED, Course.FINISH, workflow_result=result)


def failed(reason: str) -> Verdict:
    """The body declared the workflow failed."""
    said = Failure("durable.fail", readable(reason), "")
    return Verdict(ExecutionState.FAILED, Outcome.FAILED, Course.FAIL, reason=reason, failure=said)


def removed() -> Verdict:
    """The step is a gravestone: the row goes on from where it stood."""
    return Verdict(ExecutionState.SKIPPED, Outcome.REMOVED, Course.ON)


def hero_gone() -> Verdict:
    """The hero's row was deleted."""
    return Verdict(ExecutionState.CANCELED, Outcome.HERO_GONE, Course.CANCEL, reason="its hero is gone")


_OUTCOMES = {
    "pause": (Outcome.PAUSED, Course.PAUSE),
    "cancel": (Outcome.CANCELED, Course.CANCEL),
    "reattempt": (Outcome.REATTEMPTED, Course.AGAIN),
    "skip": (Outcome.SKIPPED, Course.ON),
    "fail": (Outcome.FAILED, Course.FAIL),
}


def raised(failure: Failure, decision: Decision, *, timed_out: bool = False) -> Verdict:
    """The body raised, or ran for too long, and its policy decided."""
    outcome, course = _OUTCOMES[decision.action]
    outcome = Outcome.TIMED_OUT if timed_out else outcome
    again = decision.action == "reattempt"
    return Verdict(
        ExecutionState.FAILED,
        outcome,
        course,
        reason=str(failure),
        wait=decision.wait,
        failure=failure,
        counts_as="reattempt" if again else None,
        same_key=True,
    )


def handled(failure: Failure, flow: Verdict) -> Verdict:
    """The body raised, and a handler decided by flow control."""
    reason = flow.reason or str(failure)
    return replace(flow, execution=ExecutionState.FAILED, failure=failure, reason=reason, same_key=True)


def crashed(action: Literal["reattempt", "pause", "cancel"], *, crashes: int, most: int) -> Verdict:
    """The worker that held the execution is gone."""
    if action == "cancel":
        return Verdict(ExecutionState.FAILED, Outcome.CANCELED, Course.CANCEL, reason="its worker was lost")
    looping = crashes + 1 >= most
    if action == "pause" or looping:
        reason = f"its step ended its worker {crashes + 1} times in a row" if looping else "its worker was lost"
        return Verdict(ExecutionState.FAILED, Outcome.PAUSED, Course.PAUSE, reason=reason)
    return Verdict(ExecutionState.FAILED, Outcome.RECOVERED, Course.AGAIN, counts_as="crash", same_key=True)


def interrupted(failure: Failure, *, crashes: int, most: int) -> Verdict:
    """The database went away under the step: nothing it wrote was kept, so it runs again."""
    verdict = replace(crashed("reattempt", crashes=crashes, most=most), failure=failure)
    if verdict.course is Course.AGAIN:
        return replace(verdict, outcome=Outcome.INTERRUPTED)
    return replace(verdict, reason=f"the database went away under its step {crashes + 1} times in a row")


def handed_back() -> Verdict:
    """The worker had to stop in the middle of the body: another one runs it, as if this one had not begun."""
    return Verdict(ExecutionState.CANCELED, Outcome.HANDED_BACK, Course.AGAIN, counts_as="nothing", same_key=True)


class Standing(Protocol):
    """The execution that a verdict is about."""

    @property
    def step(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def reattempts(self) -> int: ...
    @property
    def crashes(self) -> int: ...
    @property
    def idempotency_key(self) -> UUID: ...


class Stop(Protocol):
    """A step that may follow."""

    @property
    def name(self) -> str: ...
    @property
    def wait(self) -> timedelta: ...


@dataclass(frozen=True)
class Next:
    """The execution to schedule."""

    step: str
    wait: timedelta = timedelta()
    attempt: int = 1
    reattempts: int = 0
    crashes: int = 0
    idempotency_key: UUID | None = None


@dataclass(frozen=True)
class Plan:
    """Everything a settle writes, besides what the step itself wrote."""

    execution: ExecutionState
    outcome: Outcome
    workflow: WorkflowState
    step: str | None
    reason: str | None = None
    ended_because: str | None = None
    result: str | None = None
    workflow_result: str | None = None
    failure: Failure | None = None
    next: Next | None = None


_WORKFLOW_STATES = {
    Course.ON: WorkflowState.READY,
    Course.AGAIN: WorkflowState.READY,
    Course.PAUSE: WorkflowState.PAUSED,
    Course.PAUSE_BEFORE_NEXT: WorkflowState.PAUSED,
    Course.FINISH: WorkflowState.FINISHED,
    Course.CANCEL: WorkflowState.CANCELED,
    Course.FAIL: WorkflowState.FAILED,
}


def plan(verdict: Verdict, standing: Standing, following: Stop | None) -> Plan:
    """Return what to write for a verdict; `following` is the step after the one that ended."""
    upcoming = _upcoming(verdict, standing, following)
    workflow = _WORKFLOW_STATES[verdict.course]
    if verdict.course is Course.ON and upcoming is None:
        workflow = WorkflowState.FINISHED
    return Plan(
        execution=verdict.execution,
        outcome=verdict.outcome,
        workflow=workflow,
        step=_stands_at(verdict, standing, upcoming),
        reason=_reason(verdict, workflow),
        ended_because=None if verdict.reason is None or verdict.failure else readable(verdict.reason),
        result=verdict.result,
        workflow_result=verdict.workflow_result,
        failure=verdict.failure,
        next=upcoming,
    )


def _reason(verdict: Verdict, workflow: WorkflowState) -> str | None:
    if workflow is WorkflowState.PAUSED:
        return readable(verdict.reason or "paused by its step")
    if verdict.reason is None or workflow not in (WorkflowState.CANCELED, WorkflowState.FAILED):
        return None
    return readable(verdict.reason)


def _upcoming(verdict: Verdict, standing: Standing, following: Stop | None) -> Next | None:
    if verdict.course is Course.AGAIN:
        return _again(verdict, standing)
    if verdict.course in (Course.ON, Course.PAUSE_BEFORE_NEXT) and following is not None:
        return Next(following.name, wait=following.wait)
    return None


def _again(verdict: Verdict, standing: Standing) -> Next:
    counts_as = verdict.counts_as
    return Next(
        standing.step,
        wait=verdict.wait,
        attempt=standing.attempt if counts_as == "nothing" else standing.attempt + 1,
        reattempts=standing.reattempts + 1 if counts_as == "reattempt" else _kept(counts_as, standing.reattempts),
        crashes=standing.crashes + 1 if counts_as == "crash" else standing.crashes if counts_as == "nothing" else 0,
        idempotency_key=standing.idempotency_key if verdict.same_key else None,
    )


def _kept(counts_as: str | None, reattempts: int) -> int:
    """A crash neither counts as an exception nor forgives the ones before it; nor does handing a step back."""
    return reattempts if counts_as in ("crash", "nothing") else 0


def _stands_at(verdict: Verdict, standing: Standing, upcoming: Next | None) -> str | None:
    if upcoming is not None:
        return upcoming.step
    if verdict.course in (Course.ON, Course.FINISH, Course.PAUSE_BEFORE_NEXT):
        return None
    return standing.step

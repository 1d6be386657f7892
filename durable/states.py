"""The states of workflows and executions, and the only moves between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Generic, TypeVar


class WorkflowState(StrEnum):
    """Where a workflow stands."""

    READY = "ready"
    PERFORMING = "performing"
    WAITING = "waiting"
    PAUSED = "paused"
    COMPENSATING = "compensating"
    FINISHED = "finished"
    CANCELED = "canceled"
    FAILED = "failed"
    ROLLED_BACK = "rolled_back"


class ExecutionState(StrEnum):
    """Where one attempt at a step stands."""

    SCHEDULED = "scheduled"
    WAITING = "waiting"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    SKIPPED = "skipped"


class Outcome(StrEnum):
    """What an ended execution led to, where its state alone does not tell."""

    SUCCESS = "success"
    FINISHED = "finished"
    PAUSED = "paused"
    CANCELED = "canceled"
    REATTEMPTED = "reattempted"
    SKIPPED = "skipped"
    FAILED = "failed"
    RECOVERED = "recovered"
    INTERRUPTED = "interrupted"
    HANDED_BACK = "handed_back"
    TIMED_OUT = "timed_out"
    REMOVED = "removed"
    HERO_GONE = "hero_gone"
    REPLACED = "replaced"


class StopRequest(StrEnum):
    """What a caller asked for while a step was running."""

    PAUSE = "pause"
    CANCEL = "cancel"

    @property
    def when(self) -> str:
        """When it is done: a pause lets the step end, a cancel interrupts it."""
        return "when the step ends" if self is StopRequest.PAUSE else "within about a second, by interrupting the step"


TERMINAL = (
    WorkflowState.FINISHED,
    WorkflowState.CANCELED,
    WorkflowState.FAILED,
    WorkflowState.ROLLED_BACK,
)
ONGOING = tuple(state for state in WorkflowState if state not in TERMINAL)

LIVE = (ExecutionState.SCHEDULED, ExecutionState.WAITING, ExecutionState.IN_PROGRESS)
ENDED = tuple(state for state in ExecutionState if state not in LIVE)

State = TypeVar("State", bound=StrEnum)


class Moves(Generic[State]):
    """One state machine. Two of them never share a table: equal values of two StrEnums are equal."""

    def __init__(self, table: Mapping[State, Iterable[State]]) -> None:
        self._table = {origin: tuple(targets) for origin, targets in table.items()}

    def pairs(self) -> Iterable[tuple[State, State]]:
        """Return every move, as (from, to)."""
        return [(origin, target) for origin, targets in self._table.items() for target in targets]

    def allow(self, origin: State, target: State) -> bool:
        """Tell whether a row may go from one state to the other."""
        return target in self._table.get(origin, ())

    def origins(self, target: State) -> tuple[State, ...]:
        """Return the states from which the target can be reached: the guard of every update."""
        return tuple(origin for origin, targets in self._table.items() if target in targets)


def _workflow_moves() -> Moves[WorkflowState]:
    s = WorkflowState
    return Moves(
        {
            s.READY: (s.PERFORMING, s.READY, s.PAUSED, s.FINISHED, s.CANCELED),
            s.PERFORMING: (s.READY, s.PAUSED, s.FINISHED, s.CANCELED, s.FAILED),
            s.WAITING: (s.READY, s.PAUSED, s.FINISHED, s.CANCELED),
            s.PAUSED: (s.READY, s.WAITING, s.FINISHED, s.CANCELED),
            s.FINISHED: (s.READY,),
            s.CANCELED: (s.READY,),
            s.FAILED: (s.READY,),
        }
    )


def _execution_moves() -> Moves[ExecutionState]:
    s = ExecutionState
    return Moves(
        {
            s.SCHEDULED: (s.IN_PROGRESS, s.CANCELED, s.SKIPPED),
            s.WAITING: (s.CANCELED, s.SKIPPED),
            s.IN_PROGRESS: (s.COMPLETED, s.FAILED, s.CANCELED, s.SKIPPED),
        }
    )


WORKFLOW_MOVES = _workflow_moves()
EXECUTION_MOVES = _execution_moves()

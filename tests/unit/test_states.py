"""The moves that states allow."""

from __future__ import annotations

import pytest

from durable.states import (
    ENDED,
    EXECUTION_MOVES,
    LIVE,
    ONGOING,
    TERMINAL,
    WORKFLOW_MOVES,
    ExecutionState,
    WorkflowState,
)


def reachable(moves, start):
    """The states that a row can ever get to."""
    seen, found = set(), {start}
    while found:
        seen |= found
        found = {target for origin, target in moves.pairs() if origin in found} - seen
    return seen


def test_a_workflow_is_either_ongoing_or_has_ended():
    assert set(ONGOING) == {"ready", "performing", "waiting", "paused", "compensating"}
    assert set(TERMINAL) == {"finished", "canceled", "failed", "rolled_back"}
    assert set(ONGOING) | set(TERMINAL) == set(WorkflowState)


def test_an_execution_is_either_live_or_has_ended():
    assert set(LIVE) == {"scheduled", "waiting", "in_progress"}
    assert set(ENDED) == {"completed", "failed", "canceled", "skipped"}
    assert set(LIVE) | set(ENDED) == set(ExecutionState)


def test_an_execution_that_has_ended_never_moves_again():
    assert not [move for move in EXECUTION_MOVES.pairs() if move[0] in ENDED]


def test_an_execution_is_completed_or_failed_only_by_having_run():
    assert EXECUTION_MOVES.origins(ExecutionState.COMPLETED) == (ExecutionState.IN_PROGRESS,)
    assert EXECUTION_MOVES.origins(ExecutionState.FAILED) == (ExecutionState.IN_PROGRESS,)


def test_only_a_ready_workflow_performs():
    assert WORKFLOW_MOVES.origins(WorkflowState.PERFORMING) == (WorkflowState.READY,)


@pytest.mark.parametrize("ended", [state for state in TERMINAL if state is not WorkflowState.ROLLED_BACK])
def test_a_workflow_that_has_ended_can_only_be_made_ready_again(ended):
    assert [target for origin, target in WORKFLOW_MOVES.pairs() if origin is ended] == [WorkflowState.READY]


def test_nothing_leads_out_of_a_rollback():
    assert not [move for move in WORKFLOW_MOVES.pairs() if move[0] is WorkflowState.ROLLED_BACK]


@pytest.mark.parametrize("state", [WorkflowState.READY, WorkflowState.WAITING, WorkflowState.PAUSED])
@pytest.mark.parametrize("end", [WorkflowState.FINISHED, WorkflowState.CANCELED])
def test_what_is_not_running_can_be_skipped_to_its_end_or_canceled(state, end):
    assert WORKFLOW_MOVES.allow(state, end)


@pytest.mark.parametrize("state", [WorkflowState.READY, WorkflowState.PERFORMING, WorkflowState.WAITING])
def test_what_is_under_way_can_be_paused(state):
    assert WORKFLOW_MOVES.allow(state, WorkflowState.PAUSED)


@pytest.mark.parametrize("state", [WorkflowState.READY, WorkflowState.PAUSED, *TERMINAL])
def test_only_a_running_step_fails_a_workflow(state):
    assert not WORKFLOW_MOVES.allow(state, WorkflowState.FAILED)


def test_the_guard_of_a_move_names_exactly_the_states_that_allow_it():
    for moves, states in ((WORKFLOW_MOVES, WorkflowState), (EXECUTION_MOVES, ExecutionState)):
        for target in states:
            assert set(moves.origins(target)) == {origin for origin in states if moves.allow(origin, target)}


def test_every_state_that_code_uses_can_be_reached_from_the_first():
    assert reachable(EXECUTION_MOVES, ExecutionState.SCHEDULED) | {"waiting"} == set(ExecutionState)
    assert reachable(WORKFLOW_MOVES, WorkflowState.READY) >= {"performing", "paused", "finished", "canceled", "failed"}

"""A worker is killed at each place where something could be lost or doubled, and another one goes on."""

from __future__ import annotations

import signal
import statistics
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import pytest
from sqlalchemy import text

from tests.acceptance.processes.app import Chain
from tests.acceptance.processes.stage import Stage, WorkerCommand
from tests.waiting import until

ROUNDS = 20
SALVO = 5
"""Rounds that are under way at once: each is a kill of its own, what follows is waited for together."""
SURVIVORS = 2
BEFORE_RECOVERY = 1.0
"""Seconds in which nothing that was killed can be under way again: what reaches the failpoint is what was just made."""
WITHIN = 10.0

POINTS = {
    "claim.before": [("one", "scheduled")],
    "claim.after": [("one", "in_progress")],
    "body": [("one", "in_progress")],
    "settle.before_commit": [("one", "in_progress")],
    "push.before": [("one", "completed"), ("two", "scheduled")],
}
"""What a worker that dies there leaves of a workflow it has just begun."""


@dataclass(frozen=True)
class Kill:
    """The death of a worker, by Postgres's time, and the workflow whose execution it had in hand."""

    workflow_id: UUID
    at: datetime


class Crew:
    """Workers that all have one failpoint; whoever reaches it while it is armed dies."""

    def __init__(self, stage: Stage, point: str) -> None:
        self.stage, self.point = stage, point
        self._setting, self._armed = stage.arm(point)
        self.kills: list[Kill] = []

    @property
    def _alive(self) -> list[WorkerCommand]:
        return [worker for worker in self.stage.workers if not worker.ended]

    def replenish(self) -> None:
        """Start workers in the place of those that are gone, without waiting for them."""
        until(lambda: len(self.stage.workers) - len(self._alive) == len(self.kills), "one command ends for each kill")
        while len(self._alive) < SALVO + SURVIVORS:
            self.stage.start_worker(threads=2, ready=False, failpoints=self._setting)

    def await_all(self) -> None:
        """Wait until all are at work: a worker is known to the others from its first sign of life on."""
        until(lambda: all(map(self._is_at_work, self._alive)), "every worker has given a sign of life")

    def _is_at_work(self, worker: WorkerCommand) -> bool:
        if "ready for action" not in worker.told:
            return False
        return bool(self.stage.ask("SELECT true FROM durable.workers WHERE pid = :pid", pid=worker.worker_pid))

    def salvo(self) -> list[Kill]:
        """Kill several, one after the other, while nothing that they leave behind is under way again."""
        end = time.monotonic() + BEFORE_RECOVERY
        kills = [self._kill()]
        while len(kills) < min(SALVO, ROUNDS - len(self.kills)) and time.monotonic() < end:
            kills.append(self._kill())
        self.kills += kills
        return kills

    def _kill(self) -> Kill:
        self._armed.touch()
        workflow = self.stage.create(Chain)
        until(lambda: not self._armed.exists(), f"a worker dies at {self.point}")
        kill = Kill(workflow.id, self.stage.ask("SELECT clock_timestamp()"))
        assert executions(self.stage, workflow.id) == POINTS[self.point]
        return kill


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("point", POINTS)
def test_what_a_killed_worker_had_in_hand_runs_on_another_within_ten_seconds(stage, point, capsys):
    crew = Crew(stage, point)
    while len(crew.kills) < ROUNDS:
        crew.replenish()
        crew.await_all()
        kills = crew.salvo()
        crew.replenish()
        for kill in kills:
            until(lambda kill=kill: seconds_until_taken_over(stage, kill), "another worker runs it")
        stage.await_finished(len(crew.kills))

    seconds = [seconds_until_taken_over(stage, kill) for kill in crew.kills]
    report = f"{point}: {len(seconds)} kills, on another worker after {figures(seconds)}"
    with capsys.disabled():
        sys.stdout.write(f"\n{report}\n")
    assert max(seconds) <= WITHIN, report
    assert_each_step_was_completed_once(stage)
    assert outcomes(stage).get("recovered", 0) == sum(("one", "in_progress") in POINTS[point] for _ in crew.kills)


@pytest.mark.slow
@pytest.mark.parametrize("buried", [False, True], ids=["a worker not yet missed", "a worker already buried"])
def test_a_claim_that_postgres_commits_for_a_dead_worker_is_taken_over(stage, buried):
    workflow = stage.create(Chain)
    with stage.engine.begin() as holder:
        holder.execute(text("SELECT FROM durable.workflows WHERE id = :id FOR UPDATE"), {"id": workflow.id})
        victim = stage.start_worker()
        (backend,) = until(lambda: waiting_claims(stage), "the claim waits for the workflow's row")
        dead = until(lambda: stage.ask("SELECT id FROM durable.workers"), "the worker is known")
        victim.signal_worker(signal.SIGKILL)
        until(lambda: victim.ended, "the worker is dead")
        stage.start_worker()
        if buried:
            until(lambda: not is_known(stage, dead), "the dead worker is missed and forgotten")
            assert executions(stage, workflow.id) == [("one", "scheduled")]
            until(lambda: len(waiting_claims(stage)) == 2, "the other worker has got the message and stands behind")
    until(lambda: not is_connected(stage, backend), "the dead worker's connection has done its last")

    stage.await_finished(1)

    [first, *_] = stage.rows(
        "SELECT worker, outcome FROM durable.executions WHERE workflow_id = :id ORDER BY seq", id=workflow.id
    )
    assert first == (dead, "recovered")
    assert_each_step_was_completed_once(stage)


def executions(stage: Stage, workflow_id: UUID) -> list[tuple[str, str]]:
    """Return step and state of a workflow's executions, in their order."""
    query = "SELECT step, state FROM durable.executions WHERE workflow_id = :id ORDER BY seq"
    return stage.rows(query, id=workflow_id)


def seconds_until_taken_over(stage: Stage, kill: Kill) -> float | None:
    """Return how long after a kill its workflow ran again; by then nobody else than another worker can do that."""
    query = """SELECT CAST(extract(epoch FROM min(started_at) - :at) AS float) FROM durable.executions
               WHERE workflow_id = :id AND started_at > :at"""
    return stage.ask(query, id=kill.workflow_id, at=kill.at)


def outcomes(stage: Stage) -> dict[str, int]:
    """Return how many executions had which outcome."""
    return dict(stage.rows("SELECT outcome, count(*) FROM durable.executions GROUP BY outcome"))


def assert_each_step_was_completed_once(stage: Stage) -> None:
    steps = stage.rows(
        """SELECT w.id, s.step, count(e.id) FROM durable.workflows w CROSS JOIN (VALUES ('one'), ('two'), ('three'))
           s (step) LEFT JOIN durable.executions e
             ON e.workflow_id = w.id AND e.step = s.step AND e.outcome = 'success'
           GROUP BY w.id, s.step HAVING count(e.id) <> 1"""
    )
    assert steps == []
    stage.assert_sound()


def figures(seconds: list[float]) -> str:
    return f"p50 {statistics.median(seconds):.1f} s, max {max(seconds):.1f} s"


def waiting_claims(stage: Stage) -> list[int]:
    """Return the Postgres processes of claims that wait for a lock."""
    query = """SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'
               AND query LIKE '%FOR NO KEY UPDATE%' AND query LIKE '%in_progress%'"""
    return [pid for (pid,) in stage.rows(query)]


def is_connected(stage: Stage, backend: int) -> bool:
    return bool(stage.ask("SELECT true FROM pg_stat_activity WHERE pid = :pid", pid=backend))


def is_known(stage: Stage, worker: str) -> bool:
    return bool(stage.ask("SELECT true FROM durable.workers WHERE id = :id", id=worker))

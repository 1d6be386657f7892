"""The demo's first disaster: a worker process is killed in the middle of a step that has already written."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from actors.demo_stage import CONNECTION, Stage

_WRITERS = f"""
SELECT w.id, w.pid, count(*) AS transactions
FROM durable.workers w JOIN pg_stat_activity a ON a.application_name = '{CONNECTION} ' || w.pid
WHERE a.datname = current_database() AND a.state = 'idle in transaction' AND a.backend_xid IS NOT NULL
  AND a.query LIKE 'INSERT INTO shop.stock_movements%'
GROUP BY w.id, w.pid ORDER BY transactions DESC LIMIT 1
"""
_CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = :name"
_RUNNING = """
SELECT e.id, e.step, coalesce(p.order_id, w.hero_key::int) AS order_id
FROM durable.executions e JOIN durable.workflows w ON w.id = e.workflow_id
LEFT JOIN shop.payments p ON w.hero_type LIKE '%Payment' AND p.id = w.hero_key::int
WHERE e.state = 'in_progress' AND e.worker = :worker ORDER BY order_id
"""
_MOVEMENTS = "SELECT count(*) FROM shop.stock_movements WHERE order_id = ANY(:orders)"
_AGAIN = """
SELECT again.worker, extract(epoch FROM again.started_at - :at)::float AS seconds
FROM durable.executions lost JOIN durable.executions again
  ON again.workflow_id = lost.workflow_id AND again.step = lost.step AND again.seq > lost.seq
WHERE lost.id = :execution AND again.started_at IS NOT NULL ORDER BY again.seq LIMIT 1
"""

RESERVE = "reserve_stock"
_SETTLED = 0.1
"""Seconds in which Postgres has surely read what the worker had sent before it was stopped."""


@dataclass(frozen=True)
class LostStep:
    """A step that was running when its worker died."""

    execution_id: UUID
    step: str
    order_id: int


@dataclass(frozen=True)
class Crash:
    """What is known of a worker's death."""

    worker: str
    at: datetime
    wrote: int
    lost: tuple[LostStep, ...]
    left_behind: int


def kill_a_worker(stage: Stage, victim: Row[Any]) -> Crash:
    """Kill a worker process, and see what it held and what is left of what it wrote."""
    stage.killed += 1
    os.kill(victim.pid, signal.SIGKILL)
    at = stage.ask("SELECT clock_timestamp()")
    name = f"{CONNECTION} {victim.pid}"
    stage.until(lambda: not stage.ask(_CONNECTIONS, name=name), "the connections of the dead worker were closed")
    lost = tuple(LostStep(row.id, row.step, row.order_id) for row in stage.rows(_RUNNING, worker=victim.id))
    orders = [one.order_id for one in lost if one.step == RESERVE]
    return Crash(victim.id, at, victim.transactions, lost, left_behind=stage.ask(_MOVEMENTS, orders=orders))


def catch_a_worker(stage: Stage) -> Row[Any] | None:
    """Stop a worker in the middle of a step that has written, None if there is none at this moment.

    It is stopped first and looked at then, as what is looked at would go on otherwise.
    """
    for found in stage.rows(_WRITERS):
        os.kill(found.pid, signal.SIGSTOP)
        time.sleep(_SETTLED)
        for still in stage.rows(_WRITERS):
            if still.id == found.id:
                return still
        os.kill(found.pid, signal.SIGCONT)
    return None


def repetitions(stage: Stage, crash: Crash) -> list[tuple[LostStep, float, str]]:
    """Return the lost steps that run again, how many seconds after the kill, and where."""
    return [
        (one, row.seconds, stage.name_of(row.worker))
        for one in crash.lost
        for row in stage.rows(_AGAIN, execution=one.execution_id, at=crash.at)
    ]

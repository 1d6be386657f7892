"""Worker processes: their rows, their signs of life, and those who give none any more.

What is asked every second is not prepared: a plan that was made while the tables were small is kept when they are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from psycopg import Connection
from psycopg.rows import class_row, tuple_row

from durable.clock import Clock


@dataclass(frozen=True)
class Worker:
    """A worker process as others know it."""

    id: str
    host: str
    pid: int
    lock_key: int
    broker_id: str | None
    queues: list[str]
    classes: list[str]


@dataclass(frozen=True)
class Held:
    """A claim that a worker holds, and what a caller has asked of its workflow meanwhile."""

    token: UUID
    stop_requested: str | None
    stop_reason: str | None


_REGISTER = """
INSERT INTO durable.workers (id, host, pid, lock_key, broker_id, queues, classes, started_at, seen_at)
VALUES (%(id)s, %(host)s, %(pid)s, %(lock_key)s, %(broker_id)s, %(queues)s, %(classes)s, {now}, {now})
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, lock_key = excluded.lock_key
RETURNING pg_try_advisory_lock(%(lock_key)s)
"""

_BEAT = """
WITH seen AS (
    UPDATE durable.workers SET seen_at = {now} WHERE id = %(worker)s RETURNING id
), held AS (
    SELECT e.id, e.claim, e.lease_until, w.stop_requested, w.stop_reason
    FROM durable.executions e JOIN durable.workflows w ON w.id = e.workflow_id
    WHERE e.worker = (SELECT id FROM seen) AND e.lease_until IS NOT NULL
      AND e.claim IN (SELECT unnest(%(tokens)s::uuid[]))
), expiring AS (
    SELECT id FROM durable.executions
    WHERE id = ANY(ARRAY(SELECT id FROM held)) AND lease_until < {now} + %(lease)s * 0.7
    FOR NO KEY UPDATE SKIP LOCKED
), extended AS (
    UPDATE durable.executions SET lease_until = {now} + %(lease)s WHERE id = ANY(ARRAY(SELECT id FROM expiring))
)
SELECT held.claim, held.stop_requested, held.stop_reason FROM seen LEFT JOIN held ON true
"""

_SILENT = """
SELECT w.id, w.host, w.pid, w.lock_key, w.broker_id, w.queues, w.classes FROM durable.workers w
WHERE w.seen_at < {now} - %(silence)s AND (w.seen_at < {now} - %(long_silence)s OR NOT EXISTS (
    SELECT FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND (l.classid::bigint << 32 | l.objid::bigint) = w.lock_key))
"""

_BURY = """
WITH gone AS (
    DELETE FROM durable.workers WHERE id = %(worker)s AND seen_at < {now} - %(silence)s RETURNING id
), held AS (
    SELECT e.id FROM durable.executions e JOIN gone ON e.worker = gone.id
    WHERE e.lease_until IS NOT NULL FOR NO KEY UPDATE OF e SKIP LOCKED
), lost AS (
    UPDATE durable.executions e SET lease_until = {now} - interval '1 microsecond' FROM held WHERE e.id = held.id
)
SELECT count(*) FROM gone
"""


def register(conn: Connection[Any], clock: Clock, worker: Worker) -> None:
    """Make a worker known, and hold its lock for as long as this connection lives."""
    conn.execute(_REGISTER.format(now=clock.sql), vars(worker))


def beat(
    conn: Connection[Any], clock: Clock, worker: str, tokens: Sequence[UUID], *, lease: timedelta
) -> list[Held] | None:
    """Give a sign of life, extend the leases that will run out soon, and return the claims that still hold.

    None means that the worker was taken for dead.
    """
    values = {"worker": worker, "tokens": list(tokens), "lease": lease}
    with conn.cursor(row_factory=tuple_row) as cursor:
        rows = cursor.execute(_BEAT.format(now=clock.sql), values, prepare=False).fetchall()
    return [Held(*row) for row in rows if row[0] is not None] if rows else None


def silent(conn: Connection[Any], clock: Clock, *, silence: timedelta, long_silence: timedelta) -> list[Worker]:
    """Return workers without a sign of life whose lock is free, or that have been silent for very long."""
    values = {"silence": silence, "long_silence": long_silence}
    with conn.cursor(row_factory=class_row(Worker)) as cursor:
        return cursor.execute(_SILENT.format(now=clock.sql), values, prepare=False).fetchall()


def bury(conn: Connection[Any], clock: Clock, worker: str, *, silence: timedelta) -> bool:
    """Take a worker for dead unless it has been heard of meanwhile: its claims can be recovered from now on.

    Those that a transaction of its own still holds are passed over; their leases run out by themselves.
    """
    found = conn.execute(_BURY.format(now=clock.sql), {"worker": worker, "silence": silence}).fetchone()
    return bool(found and found[0])


def leave(conn: Connection[Any], worker: str) -> None:
    """Forget a worker that has ended in good order."""
    conn.execute("DELETE FROM durable.workers WHERE id = %s", (worker,))

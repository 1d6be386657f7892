"""What people ask about all workflows, or about why one does not move; every count stops at a cap."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, TextClause, select, text

from durable.clock import Clock
from durable.schema import executions, outbox
from durable.states import ExecutionState, WorkflowState


@dataclass(frozen=True)
class Count:
    """How many there are, or that there are more than anyone wants to wait for."""

    number: int
    more: bool = False

    def __str__(self) -> str:
        return f"{self.number:,}{'+' if self.more else ''}"


@dataclass(frozen=True)
class Tally:
    """How many workflows of a class are in a state."""

    name: str
    state: WorkflowState
    count: Count


@dataclass(frozen=True)
class Backlog:
    """The messages that nobody has taken: all of them, those whose time has come, and those that are late."""

    size: Count
    due: Count
    overdue: Count
    lag: timedelta
    oldest: UUID | None


@dataclass(frozen=True)
class Damage:
    """Ready workflows that nothing would wake: overdue without a message, or with nothing scheduled at all."""

    without_message: Count
    without_execution: Count


@dataclass(frozen=True)
class Pace:
    """What ended within a while."""

    within: timedelta
    executions: Count
    workflows: Count


@dataclass(frozen=True)
class FailureGroup:
    """Executions of a step that ended with the same class of error."""

    name: str
    step: str
    error_class: str
    count: int
    last: datetime
    workflow_id: UUID


@dataclass(frozen=True)
class WorkerRow:
    """A worker as it registered itself, with what it does now."""

    id: str
    host: str
    pid: int
    queues: tuple[str, ...]
    classes: tuple[str, ...]
    started_at: datetime
    seen_at: datetime
    alive: bool
    performing: int


@dataclass(frozen=True)
class MessageRow:
    """The message of an execution: how often the relay has sent it, and when it looks at it next."""

    sends: int
    due_at: datetime


# Finds each distinct value by one look into the index, however many rows there are of each.
_DISTINCT = """
WITH RECURSIVE found AS (
    (SELECT {column} AS value FROM durable.workflows WHERE {column} IS NOT NULL ORDER BY {column} LIMIT 1)
    UNION ALL
    SELECT (SELECT {column} FROM durable.workflows WHERE {column} > found.value ORDER BY {column} LIMIT 1)
    FROM found WHERE found.value IS NOT NULL
)
"""
_NAMES = _DISTINCT.format(column="name")
_HERO_TYPES = _DISTINCT.format(column="hero_type")

_ONGOING = f"""
{_NAMES}
SELECT found.value AS name, counted.state, least(counted.number, :cap) AS number, counted.seen > :cap AS more
FROM found CROSS JOIN LATERAL (
    SELECT state, count(*) AS number, sum(count(*)) OVER () AS seen
    FROM (SELECT state FROM durable.workflows WHERE name = found.value AND ended_at IS NULL LIMIT :cap + 1) w
    GROUP BY state
) counted
ORDER BY 1, 2
"""

_ENDED = """
SELECT name, state, least(count(*), :cap) AS number, sum(count(*)) OVER () > :cap AS more
FROM (
    SELECT name, state FROM durable.workflows WHERE ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT :cap + 1
) w
GROUP BY name, state ORDER BY name, state
"""

_BACKLOG = """
WITH looked_at AS (
    SELECT execution_id FROM durable.outbox
    WHERE due_at <= {now} + CAST(:reach AS interval) AND (sends > 0 OR due_at <= {now} + interval '5 s')
    ORDER BY due_at LIMIT :cap + 1
), waiting AS MATERIALIZED (
    SELECT e.scheduled_for, e.workflow_id
    FROM looked_at JOIN durable.executions e ON e.id = looked_at.execution_id
    WHERE e.scheduled_for <= {now}
)
SELECT (SELECT count(*) FROM (SELECT FROM durable.outbox LIMIT 10 * :cap + 1) o) AS size,
       count(*) AS due,
       count(*) FILTER (WHERE scheduled_for <= {now} - CAST(:late AS interval)) AS overdue,
       coalesce({now} - min(scheduled_for), interval '0') AS lag,
       (SELECT workflow_id FROM waiting ORDER BY scheduled_for LIMIT 1) AS oldest
FROM waiting
"""

_DAMAGE = f"""
SELECT (SELECT count(*) FROM (
            SELECT FROM durable.executions e JOIN durable.workflows w ON w.id = e.workflow_id
            WHERE e.finished_at IS NULL AND e.state = '{ExecutionState.SCHEDULED}'
              AND e.scheduled_for < {{now}} - CAST(:overdue AS interval)
              AND w.state = '{WorkflowState.READY}'
              AND NOT EXISTS (SELECT FROM durable.outbox o WHERE o.execution_id = e.id)
            LIMIT :cap + 1) lost) AS without_message,
       (SELECT count(*) FROM (
            SELECT FROM durable.workflows w
            WHERE w.state = '{WorkflowState.READY}' AND w.created_at < {{now}} - CAST(:overdue AS interval)
              AND NOT EXISTS (
                SELECT FROM durable.executions e WHERE e.workflow_id = w.id AND e.finished_at IS NULL)
            LIMIT :cap + 1) stranded) AS without_execution
"""

_PACE = """
SELECT (SELECT count(*) FROM (
            SELECT FROM durable.executions WHERE finished_at > {now} - CAST(:within AS interval)
            ORDER BY finished_at DESC LIMIT :cap + 1) e) AS executions,
       (SELECT count(*) FROM (
            SELECT FROM durable.workflows WHERE ended_at > {now} - CAST(:within AS interval)
            ORDER BY ended_at DESC LIMIT :cap + 1) w) AS workflows
"""

_FAILURES = """
SELECT w.name, e.step, e.error_class, count(*) AS count, max(e.finished_at) AS last,
       (array_agg(w.id ORDER BY e.finished_at DESC))[1] AS workflow_id
FROM (
    SELECT workflow_id, step, error_class, finished_at FROM durable.executions
    WHERE error_class IS NOT NULL AND finished_at > {now} - CAST(:within AS interval)
    ORDER BY finished_at DESC LIMIT :cap
) e JOIN durable.workflows w ON w.id = e.workflow_id
GROUP BY w.name, e.step, e.error_class ORDER BY count DESC, last DESC
"""

_WORKERS = """
SELECT w.id, w.host, w.pid, w.queues, w.classes, w.started_at, w.seen_at,
       w.seen_at > {now} - CAST(:lost_after AS interval) AS alive,
       (SELECT count(*) FROM durable.executions e WHERE e.worker = w.id AND e.lease_until IS NOT NULL) AS performing
FROM durable.workers w ORDER BY w.started_at, w.id
"""


def now(conn: Connection, clock: Clock) -> datetime:
    """Return the present, as every due time is measured by."""
    found: datetime = conn.execute(text(f"SELECT {clock.sql}")).scalar_one()
    return found


def server_time(conn: Connection) -> datetime:
    """Return what the database server's clock shows, which tests do not move."""
    found: datetime = conn.execute(text("SELECT clock_timestamp()")).scalar_one()
    return found


def class_names(conn: Connection) -> list[str]:
    """Return the names of the classes that there are workflows of."""
    return list(conn.execute(text(f"{_NAMES} SELECT value FROM found WHERE value IS NOT NULL")).scalars())


def hero_types(conn: Connection) -> list[str]:
    """Return the types of the heroes that there are workflows for."""
    return list(conn.execute(text(f"{_HERO_TYPES} SELECT value FROM found WHERE value IS NOT NULL")).scalars())


def ongoing(conn: Connection, *, cap: int) -> list[Tally]:
    """Count ongoing workflows by class and state, looking at no more than `cap` of a class."""
    return _tallies(conn.execute(text(_ONGOING), {"cap": cap}))


def ended(conn: Connection, *, cap: int) -> list[Tally]:
    """Count the workflows that ended last by class and state, looking at no more than `cap`."""
    return _tallies(conn.execute(text(_ENDED), {"cap": cap}))


def backlog(conn: Connection, clock: Clock, *, late: timedelta, reach: timedelta, cap: int) -> Backlog:
    """Measure what waits for a worker: the relay looks again at what it has sent within `reach`.

    All messages are counted up to ten times the cap: that costs no more, as their executions need not be found.
    """
    row = conn.execute(_at(_BACKLOG, clock.sql), {"late": late, "reach": reach, "cap": cap}).one()
    due, overdue = _capped(row.due, cap), _capped(row.overdue, cap)
    return Backlog(_capped(row.size, 10 * cap), due, overdue, row.lag, row.oldest)


def damage(conn: Connection, clock: Clock, *, overdue: timedelta, cap: int) -> Damage:
    """Count what a reaper would rescue: workflows that nothing would wake, and that are not just being written."""
    row = conn.execute(_at(_DAMAGE, clock.sql), {"overdue": overdue, "cap": cap}).one()
    return Damage(_capped(row.without_message, cap), _capped(row.without_execution, cap))


def pace(conn: Connection, clock: Clock, *, within: timedelta, cap: int) -> Pace:
    """Count what ended within a while until now."""
    row = conn.execute(_at(_PACE, clock.sql), {"within": within, "cap": cap}).one()
    return Pace(within, _capped(row.executions, cap), _capped(row.workflows, cap))


def failures(conn: Connection, clock: Clock, *, within: timedelta, cap: int) -> list[FailureGroup]:
    """Group the errors of a while until now, looking at no more than the last `cap`."""
    rows = conn.execute(_at(_FAILURES, clock.sql), {"within": within, "cap": cap})
    return [FailureGroup(**row._mapping) for row in rows]


def workers(conn: Connection, clock: Clock, *, lost_after: timedelta) -> list[WorkerRow]:
    """Return every worker that is registered; one that was not seen for so long is not alive."""
    rows = conn.execute(_at(_WORKERS, clock.sql), {"lost_after": lost_after})
    return [
        WorkerRow(**{**row._mapping, "queues": tuple(sorted(row.queues)), "classes": tuple(sorted(row.classes))})
        for row in rows
    ]


def message_of(conn: Connection, execution_id: UUID) -> MessageRow | None:
    """Return an execution's message, if one waits."""
    query = select(outbox.c.sends, outbox.c.due_at).where(outbox.c.execution_id == execution_id)
    row = conn.execute(query).one_or_none()
    return None if row is None else MessageRow(row.sends, row.due_at)


def lease_of(conn: Connection, execution_id: UUID) -> datetime | None:
    """Return until when an execution is claimed."""
    query = select(executions.c.lease_until).where(executions.c.id == execution_id)
    found: datetime | None = conn.execute(query).scalar()
    return found


@cache
def _at(sql: str, now: str) -> TextClause:
    return text(sql.format(now=now))


def _tallies(rows: Iterable[Any]) -> list[Tally]:
    return [Tally(row.name, WorkflowState(row.state), Count(row.number, row.more)) for row in rows]


def _capped(number: int, cap: int) -> Count:
    return Count(min(number, cap), number > cap)

"""Everything about one workflow that tells why it does or does not move."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from durable import registry, runtime
from durable.cli import lookups
from durable.cli.figures import LATE, SOME
from durable.settings import Settings
from durable.states import LIVE
from durable.store import audit, executions, statistics
from durable.store.rows import AuditEntry, Execution, WorkflowRow
from durable.store.statistics import Count, MessageRow, WorkerRow


@dataclass(frozen=True)
class Situation:
    """A workflow and what surrounds it, at one moment."""

    now: datetime
    settings: Settings
    row: WorkflowRow
    history: list[Execution]
    audit: list[AuditEntry]
    message: MessageRow | None
    lease_until: datetime | None
    workers: list[WorkerRow]
    due: Count
    loaded: bool

    @property
    def id(self) -> str:
        """The workflow's id, as commands take it."""
        return str(self.row.id)

    @property
    def live(self) -> Execution | None:
        """The execution that is scheduled, waiting or in progress."""
        return next((execution for execution in self.history if execution.state in LIVE), None)

    @property
    def last(self) -> Execution | None:
        """The execution that ended last."""
        ended = [execution for execution in self.history if execution.state not in LIVE]
        return ended[-1] if ended else None

    @property
    def alive(self) -> list[WorkerRow]:
        """The workers that are alive."""
        return [worker for worker in self.workers if worker.alive]

    def since(self, time: datetime) -> timedelta:
        """Return how long ago something was."""
        return self.now - time


def look(id: str) -> Situation:
    """Look at a workflow from all sides at one moment."""
    current = runtime.current()
    with lookups.snapshot() as (conn, now):
        row = lookups.read_row(conn, id)
        live = executions.live(conn, row.id)
        return Situation(
            now=now,
            settings=current.settings,
            row=row,
            history=executions.history(conn, row.id),
            audit=audit.entries(conn, row.id),
            message=None if live is None else statistics.message_of(conn, live.id),
            lease_until=None if live is None else statistics.lease_of(conn, live.id),
            workers=statistics.workers(conn, current.clock, lost_after=current.settings.lost_worker_after),
            due=_due(conn),
            loaded=registry.newest(row.name) is not None,
        )


def _due(conn: Connection) -> Count:
    current = runtime.current()
    reach = current.settings.stuck_scheduled_after
    return statistics.backlog(conn, current.clock, late=LATE, reach=reach, cap=SOME).due

"""A handle: one workflow as its callers see it, with the verbs that steer it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from durable import heroes, registry, runtime, verbs
from durable.errors import WorkflowNotFound
from durable.heroes import HeroReference
from durable.post import post
from durable.runtime import Place
from durable.states import LIVE, WorkflowState
from durable.steps import Definition
from durable.store import audit, executions, workflows
from durable.store.rows import AuditEntry, Execution, WorkflowRow


@contextmanager
def reading(place: Place | None) -> Iterator[Connection]:
    """Give a connection to read from: the caller's if its transaction is open, else one of our own."""
    if place is not None and place.open:
        yield place.connection()
        return
    with runtime.current().statement() as conn:
        yield conn


class Handle:
    """One row, as it was when it was last read; `refresh()` reads it again."""

    _row: WorkflowRow
    _place: Place | None

    @property
    def id(self) -> UUID:
        """The workflow's id."""
        return self._row.id

    @property
    def name(self) -> str:
        """The stored name of its class."""
        return self._row.name

    @property
    def version(self) -> int:
        """The version of the class that created it."""
        return self._row.version

    @property
    def state(self) -> WorkflowState:
        """Where it stands."""
        return self._row.state

    @property
    def reason(self) -> str | None:
        """Why it is paused, canceled or failed."""
        return self._row.reason

    @property
    def result(self) -> Any:
        """What `finish(result)` gave."""
        return self._row.result

    @property
    def queue(self) -> str:
        """The queue of its messages."""
        return self._row.queue

    @property
    def priority(self) -> int:
        """The priority of its messages; lower runs first."""
        return self._row.priority

    @property
    def created_at(self) -> datetime:
        """When it was created."""
        return self._row.created_at

    @property
    def ended_at(self) -> datetime | None:
        """When it ended, if it has."""
        return self._row.ended_at

    @property
    def hero_reference(self) -> HeroReference | None:
        """Type and key of its hero."""
        row = self._row
        if row.hero_type is None or row.hero_key is None:
            return None
        return HeroReference(row.hero_type, row.hero_key)

    @property
    def history(self) -> list[Execution]:
        """All its executions, in order."""
        with reading(self._place) as conn:
            return executions.history(conn, self.id)

    @property
    def audit(self) -> list[AuditEntry]:
        """The verbs used on it: when, which, by whom and why."""
        with reading(self._place) as conn:
            return audit.entries(conn, self.id)

    @property
    def current_execution(self) -> Execution | None:
        """The execution that is scheduled, waiting or in progress."""
        with reading(self._place) as conn:
            return executions.live(conn, self.id)

    @property
    def next_step(self) -> str | None:
        """The step that runs, or runs next once nothing stops it; None when it has ended."""
        return None if self._row.ended_at else self._row.step

    @property
    def previous_step(self) -> str | None:
        """The step of the latest execution that ended."""
        ended = [execution.step for execution in self.history if execution.state not in LIVE]
        return ended[-1] if ended else None

    def _refreshed(self) -> WorkflowRow:
        with reading(self._place) as conn:
            row = workflows.get(conn, self.id)
        if row is None:
            raise WorkflowNotFound(self.id, self.name)
        return row

    def _loaded_hero(self) -> Any:
        reference = self.hero_reference
        if reference is None:
            return None
        if self._place is not None and self._place.open:
            return heroes.load(self._place.session, reference)
        with runtime.current().session() as session:
            return heroes.load(session, reference)

    def _act(self, verb: str, do: verbs.Act, *, by: str | None, reason: str | None) -> None:
        now = runtime.current()
        joined = self._place.session if self._place is not None and self._place.open else None
        with now.transaction(self._place) as conn:
            acted = verbs.act(conn, now.clock, self.id, self._steps(), verb, do, by=by, reason=reason, look=now.look)
        self._row = acted.row
        post(now, acted.letters, joined)

    def _steps(self) -> Definition | None:
        found = registry.resolve(self._row.name, self._row.version)
        return None if found is None else found.definition

    def __repr__(self) -> str:
        return f"<{self.name} {self.id} {self.state} hero={self.hero_reference}>"

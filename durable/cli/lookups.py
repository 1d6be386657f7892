"""Finding in the database what the arguments name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection

from durable import registry, runtime
from durable.cli import loading
from durable.errors import WorkflowNotFound
from durable.store import statistics, workflows
from durable.store.rows import WorkflowRow


@contextmanager
def snapshot() -> Iterator[tuple[Connection, datetime]]:
    """Give a connection whose statements all see the same moment, and that moment."""
    current = runtime.current()
    with current.engine.connect().execution_options(isolation_level="REPEATABLE READ") as conn:
        yield conn, statistics.now(conn, current.clock)


def read_id(text: str) -> UUID:
    """Return an id, or raise `WorkflowNotFound`."""
    try:
        return UUID(text)
    except ValueError:
        raise WorkflowNotFound(text) from None


def read_row(conn: Connection, id: str) -> WorkflowRow:
    """Return a workflow, or raise `WorkflowNotFound`."""
    row = workflows.get(conn, read_id(id))
    if row is None:
        raise WorkflowNotFound(id)
    return row


def known_class(conn: Connection, name: str) -> str:
    """Return the stored name of a class that is loaded, or that there are workflows of."""
    return loading.pick(name, {*registry.loaded(), *statistics.class_names(conn)}, "workflow class")


def known_hero(conn: Connection, text: str) -> tuple[str, str]:
    """Return type and key of a hero, its type among those that workflows have or could have."""
    named = loading.read_hero(text)
    types = {*loading.loaded_hero_types(), *statistics.hero_types(conn)}
    return loading.pick(named.type, types, "hero type"), named.key

"""Migrations: brings the schema `durable` of a database up to what this code needs."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from durable.errors import DurableError
from durable.schema import SCHEMA

_LOCK = 0x64757261626C65  # "durable"


class SchemaOutdated(DurableError):
    """The database is behind the code."""

    def __init__(self, found: str | None, wanted: str) -> None:
        super().__init__(
            f"the database's schema is at {found or 'nothing'}, this version of durable needs {wanted}: "
            "run `durable migrate`"
        )


class SchemaAhead(DurableError):
    """The database is ahead of the code."""

    def __init__(self, found: str, wanted: str) -> None:
        super().__init__(
            f"the database's schema is at {found}, migrated by a newer version of durable than this one, which "
            f"needs {wanted}: there is nothing to migrate here, deploy the newer code"
        )


def migrate(engine: Engine) -> None:
    """Upgrade the database to the newest schema; one that is ahead stays as it is.

    Of two that run at once, one waits and finds nothing to do.
    """
    with engine.connect() as lock:
        lock.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
        try:
            with engine.begin() as conn:
                conn.execute(text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))
                if not _is_ahead(_revision(conn)):
                    command.upgrade(config(conn), "head")
        finally:
            lock.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _LOCK})


def check(engine: Engine, *, may_be_ahead: bool = False) -> str:
    """Return the database's revision, or raise unless it is the one that this code needs.

    `may_be_ahead` is for what still runs in the middle of a deploy: every schema works with the code before it.
    """
    wanted = newest()
    with engine.connect() as conn:
        found = _revision(conn)
    if found == wanted:
        return found
    if found is None or not _is_ahead(found):
        raise SchemaOutdated(found, wanted)
    if not may_be_ahead:
        raise SchemaAhead(found, wanted)
    return found


def sql() -> str:
    """Return the statements of an upgrade from nothing, for shops that run their own."""
    written = io.StringIO()
    offline = config(None)
    offline.output_buffer = written
    command.upgrade(offline, "head", sql=True)
    return f"CREATE SCHEMA IF NOT EXISTS {SCHEMA};\n\n{written.getvalue()}"


def newest() -> str:
    """Return the newest revision that this code ships."""
    head = ScriptDirectory.from_config(config(None)).get_current_head()
    assert head is not None
    return head


def _revision(conn: Connection) -> str | None:
    return MigrationContext.configure(conn, opts={"version_table_schema": SCHEMA}).get_current_revision()


def _is_ahead(revision: str | None) -> bool:
    """Return whether newer code has migrated: it is a revision that this code does not ship."""
    scripts = ScriptDirectory.from_config(config(None)).walk_revisions()
    return revision is not None and revision not in {script.revision for script in scripts}


def config(conn: Connection | None) -> Config:
    """Return Alembic's configuration for a connection."""
    made = Config()
    made.set_main_option("script_location", str(_folder()))
    attributes: dict[str, Any] = made.attributes
    attributes["connection"] = conn
    return made


def _folder() -> Path:
    """Find the migrations: inside the package as installed, beside it in a checkout."""
    package = Path(__file__).parent
    shipped = package / "migrations"
    return shipped if shipped.is_dir() else package.parent / "migrations"

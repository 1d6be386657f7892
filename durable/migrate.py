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
    """The database is behind, or ahead of, the code."""

    def __init__(self, found: str | None, wanted: str) -> None:
        super().__init__(
            f"the database's schema is at {found or 'nothing'}, this version of durable needs {wanted}: "
            "run `durable migrate` (or deploy the newer code, if the database is ahead)"
        )


def migrate(engine: Engine) -> None:
    """Upgrade the database to the newest schema. Of two that run at once, one waits and finds nothing to do."""
    with engine.connect() as lock:
        lock.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
        try:
            with engine.begin() as conn:
                conn.execute(text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))
                command.upgrade(config(conn), "head")
        finally:
            lock.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _LOCK})


def check(engine: Engine, *, may_be_ahead: bool = False) -> None:
    """Raise `SchemaOutdated` unless the database is at the schema that this code needs.

    `may_be_ahead` is for what still runs in the middle of a deploy: every schema works with the code before it.
    """
    wanted = newest()
    with engine.connect() as conn:
        found = MigrationContext.configure(conn, opts={"version_table_schema": SCHEMA}).get_current_revision()
    if found != wanted and not (may_be_ahead and found is not None and not _ships(found)):
        raise SchemaOutdated(found, wanted)


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


def _ships(revision: str) -> bool:
    scripts = ScriptDirectory.from_config(config(None)).walk_revisions()
    return revision in {script.revision for script in scripts}


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

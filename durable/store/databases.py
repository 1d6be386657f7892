"""Which database a connection leads to."""

from __future__ import annotations

from sqlalchemy import Connection, text


def identity(conn: Connection) -> tuple[str, ...]:
    """Return what two connections have in common exactly when they lead to the same database."""
    query = text("SELECT system_identifier::text, current_database()::text FROM pg_control_system()")
    return tuple(conn.execute(query).one())

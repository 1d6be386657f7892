"""Scratch databases: made from a template, emptied, dropped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import URL, Engine, create_engine, make_url, text


@contextmanager
def database(server: str, name: str, *, template: str | None = None) -> Iterator[URL]:
    """Give a new database on a server; it is dropped afterwards."""
    url = make_url(server).set(drivername="postgresql+psycopg")
    copy = f"TEMPLATE {template} STRATEGY FILE_COPY" if template else ""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as conn:
            conn.execute(text(f"CREATE DATABASE {name} {copy}"))
        try:
            yield url.set(database=name)
        finally:
            with engine.connect() as conn:
                conn.execute(text(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
    finally:
        engine.dispose()


def empty(engine: Engine) -> None:
    """Delete every workflow with all that belongs to it."""
    with engine.begin() as conn:
        conn.execute(text("DELETE FROM durable.outbox"))
        conn.execute(text("DELETE FROM durable.workflows"))

"""The engine that durable makes from a URL: one that neither side waits on for hours when the other is gone."""

from __future__ import annotations

from typing import Any

import psycopg
from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from durable.errors import DurableError, NotConfigured

_LIMITS = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 25_000}
"""Half a minute after its machine is gone, a server is given up and connected to anew; by default that takes hours."""
_SERVER_LIMITS = {f"tcp_{name}" if name.startswith("keep") else name: str(value) for name, value in _LIMITS.items()}
"""So is a client by its server, which then frees the locks that it held."""
_SET = "SELECT " + ", ".join(f"set_config('{name}', '{value}', false)" for name, value in _SERVER_LIMITS.items())


def make_engine(url: str | None) -> Engine:
    """Make an engine; the limits that its URL names are those."""
    if not url:
        raise NotConfigured
    try:
        parsed = make_url(url.replace("postgres://", "postgresql://", 1))
    except ArgumentError:
        raise DurableError(
            "cannot read the database URL: it looks like postgresql://user:password@host:5432/database"
        ) from None
    _check_backend(parsed.get_backend_name())
    limits = {name: value for name, value in {"connect_timeout": 10, **_LIMITS}.items() if name not in parsed.query}
    named = parsed.set(drivername="postgresql+psycopg")
    engine = create_engine(named, pool_size=10, max_overflow=20, connect_args=limits)
    event.listen(engine, "connect", _limit_server)
    return engine


def checked(engine: Engine) -> Engine:
    """Return an engine of the application's own, if it is one of Postgres."""
    _check_backend(engine.dialect.name)
    return engine


def _limit_server(driver: psycopg.Connection[Any], _: object) -> None:
    before, driver.autocommit = driver.autocommit, True
    driver.execute(_SET)
    driver.autocommit = before


def _check_backend(name: str) -> None:
    if name != "postgresql":
        raise DurableError(f"durable needs Postgres, not {name}: give it the database of your heroes")

"""The one global: settings, engine, broker, clock and sessions of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any
from uuid import uuid4

import psycopg
from sqlalchemy import Connection, Engine
from sqlalchemy.orm import Mapper, Session, scoped_session

from durable.broker import Patient, make_broker
from durable.clock import Clock
from durable.courier import Courier
from durable.engines import checked, make_engine
from durable.errors import DurableError, InvalidHero
from durable.guard import Guard
from durable.isolation import Isolation
from durable.patience import watch
from durable.settings import LOOK_WITHIN, Settings
from durable.store import databases


@dataclass(frozen=True)
class Place:
    """A caller's session, in whose transaction something is to happen."""

    session: Session
    mapper: Mapper[Any] | None = None

    def __post_init__(self) -> None:
        """Take the session that a `scoped_session` stands for: its events are those of every session of its factory."""
        given: object = self.session
        if isinstance(given, scoped_session):
            object.__setattr__(self, "session", given())

    @property
    def open(self) -> bool:
        """Whether there is a transaction to join."""
        return self.session.in_transaction()

    def connection(self) -> Connection:
        """Return the session's connection, beginning its transaction if need be."""
        arguments = {} if self.mapper is None else {"mapper": self.mapper}
        return self.session.connection(bind_arguments=arguments)


class Runtime:
    """What the engine works with. Nothing is opened before it is needed, so it may be made before a fork."""

    def __init__(
        self,
        settings: Settings,
        *,
        engine: Engine | None = None,
        session_factory: Callable[[], Session] | None = None,
    ) -> None:
        self.settings = settings
        self.clock = Clock()
        self.worker = uuid4().hex
        self.guard = Guard()
        self.isolation = Isolation()
        self._engine = engine and checked(engine)
        self._session_factory = session_factory
        self._identities: dict[Engine, tuple[str, ...]] = {}

    @property
    def engine(self) -> Engine:
        """The engine of the database that holds the workflows and their heroes."""
        if self._engine is None:
            self._engine = make_engine(self.settings.database_url)
            watch(self._engine)
        return self._engine

    @cached_property
    def broker(self) -> Patient | None:
        """The broker that the settings name; None if they name none, then only the relay's processes send messages."""
        return make_broker(self.settings)

    @cached_property
    def courier(self) -> Courier | None:
        """What sends messages after a commit."""
        return None if self.broker is None else Courier(self.broker)

    @property
    def look(self) -> timedelta:
        """How long the relay leaves a message that is due to the process that commits it."""
        return timedelta() if self.broker is None else LOOK_WITHIN

    def session(self) -> Session:
        """Make a session for a step."""
        session = Session(self.engine) if self._session_factory is None else self._session_factory()
        session.expire_on_commit = False
        if isinstance(session.bind, Engine):
            watch(session.bind)
        return session

    @contextmanager
    def transaction(self, place: Place | None = None) -> Iterator[Connection]:
        """Give the caller's open transaction, else one of our own that is committed at the end."""
        if place is not None and place.open:
            yield place.connection()
            return
        with self.engine.begin() as conn:
            yield conn

    @contextmanager
    def statement(self) -> Iterator[Connection]:
        """Give a connection on which each statement is a transaction of its own."""
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            yield conn

    @contextmanager
    def hot(self) -> Iterator[psycopg.Connection[Any]]:
        """Give psycopg's own connection, each statement a transaction of its own."""
        with self.statement() as conn:
            driver = driver_connection(conn)
            try:
                yield driver
            finally:
                if driver.closed:
                    conn.invalidate()

    def check_same_database(self, place: Place, what: str) -> None:
        """Refuse a session of another database: what it commits would not be one with our rows."""
        engine = place.session.get_bind(place.mapper).engine
        if engine is self._engine:
            return
        if engine.dialect.name != "postgresql":
            raise InvalidHero(
                f"{what} lives in a {engine.dialect.name} database: the session must be one of the Postgres "
                "database that durable is configured with"
            )
        if engine not in self._identities:
            self._identities[engine] = databases.identity(place.connection())
        if self._identities[engine] != self._own_identity:
            raise InvalidHero(
                f"{what} lives in the database {engine.url.database!r}, the workflows in "
                f"{self.engine.url.database!r}: use a session of the same database, they commit together"
            )

    @cached_property
    def _own_identity(self) -> tuple[str, ...]:
        with self.statement() as conn:
            return databases.identity(conn)


def driver_connection(conn: Connection) -> psycopg.Connection[Any]:
    """Return psycopg's own connection."""
    driver = conn.connection.driver_connection
    if not isinstance(driver, psycopg.Connection):
        raise DurableError(f"durable runs steps through psycopg 3, not {type(driver).__module__}")
    return driver


_current: Runtime | None = None


def configure(
    *,
    engine: Engine | None = None,
    session_factory: Callable[[], Session] | None = None,
    **settings: Any,
) -> Runtime:
    """Tell durable its database and settings; what is not given comes from the environment.

    Give the `engine` your application already has, or a `database_url`. `session_factory` makes the sessions that
    steps see as `self.session`.
    """
    return use(Runtime(Settings(**settings), engine=engine, session_factory=session_factory))


def use(runtime: Runtime) -> Runtime:
    """Make a runtime the one of this process."""
    global _current
    _current = runtime
    return runtime


def current() -> Runtime:
    """Return the runtime of this process."""
    return _current or configure()

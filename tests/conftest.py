"""Heroes and helpers shared by the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from durable import dev
from durable import runtime as runtimes
from durable.broker.redis import BlockingRedisBroker
from durable.runtime import Runtime
from durable.settings import Settings
from tests.invariants import violations


class Base(DeclarativeBase):
    """The tests' own tables."""


class Subscription(Base):
    """The hero of most tests."""

    __tablename__ = "subscriptions"

    id: Mapped[int] = mapped_column(primary_key=True)
    closed: Mapped[bool] = mapped_column(default=False)
    note: Mapped[str] = mapped_column(default="")
    count: Mapped[int] = mapped_column(default=0)


@pytest.fixture(scope="session")
def durable_server() -> Iterator[str]:
    """A server that counts statements, with room for all the callers of the races, and no commits of its own."""
    settings = {"shared_preload_libraries": "pg_stat_statements", "max_connections": "300", "autovacuum": "off"}
    with dev.postgres(durable=False, settings=settings) as server:
        yield server.url


@pytest.fixture(scope="session")
def _tables(durable_runtime: Runtime) -> None:
    Base.metadata.create_all(durable_runtime.engine)


@pytest.fixture
def runtime(_tables: None, durable: Runtime) -> Iterator[Runtime]:
    """An empty durable, and empty tables of heroes."""
    yield durable
    assert not violations(durable.engine)
    with durable.engine.begin() as conn:
        for table in reversed(Base.metadata.sorted_tables):
            conn.execute(text(f"DELETE FROM {table.name}"))


@pytest.fixture
def session(runtime: Runtime) -> Iterator[Session]:
    """A session of the application."""
    with Session(runtime.engine, expire_on_commit=False) as session:
        yield session


@pytest.fixture
def new_subscription(runtime: Runtime) -> Callable[[], Subscription]:
    """Make a committed hero that belongs to no session."""

    def make() -> Subscription:
        with Session(runtime.engine, expire_on_commit=False) as session, session.begin():
            hero = Subscription(closed=False, note="", count=0)
            session.add(hero)
        return hero

    return make


@pytest.fixture
def subscription(new_subscription: Callable[[], Subscription]) -> Subscription:
    """A committed hero that belongs to no session."""
    return new_subscription()


@pytest.fixture
def reload(runtime: Runtime) -> Callable[[Subscription], Subscription | None]:
    """Read a hero as it is in the database now."""

    def read(hero: Subscription) -> Subscription | None:
        with Session(runtime.engine, expire_on_commit=False) as session:
            return session.get(Subscription, hero.id)

    return read


def server_statistics(runtime: Runtime) -> tuple[int, int]:
    """Return commits and statements of this database, from the server's own counters."""
    with runtime.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        conn.execute(text("SELECT pg_stat_force_next_flush()"))
        commits = conn.execute(
            text("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")
        ).scalar()
        statements = conn.execute(
            text(
                "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid "
                "WHERE d.datname = current_database()"
            )
        ).scalar()
    return commits, int(statements)


@pytest.fixture
def counted(runtime: Runtime) -> Callable[[Callable[[], object]], tuple[int, int]]:
    """Count what a call costs the server: commits and statements, without what counting itself costs."""
    with runtime.engine.begin() as conn:
        conn.execute(text("CREATE EXTENSION IF NOT EXISTS pg_stat_statements"))

    def flush():
        runtime.engine.dispose()
        return server_statistics(runtime)

    def count(call):
        first, second = flush(), flush()
        call()
        third = flush()
        own = [b - a for a, b in zip(first, second, strict=True)]
        spent = [b - a for a, b in zip(second, third, strict=True)]
        return tuple(s - o for s, o in zip(spent, own, strict=True))

    return count


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """A Redis of this test run's own."""
    with dev.redis(durable=False) as server:
        yield server.url


@pytest.fixture
def with_broker(runtime: Runtime, redis_url: str) -> Iterator[Runtime]:
    """The same durable with an empty Redis to send messages to."""
    made = Runtime(Settings(database_url=runtime.settings.database_url, redis_url=redis_url), engine=runtime.engine)
    made.clock = runtime.clock
    assert isinstance(made.broker, BlockingRedisBroker)
    made.broker.client.flushall()
    yield runtimes.use(made)
    made.broker.client.close()

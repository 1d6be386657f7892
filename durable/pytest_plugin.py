"""Fixtures for projects that test their workflows: a migrated scratch database and a clock that moves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from durable.runtime import Runtime


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting of the server in which scratch databases are made."""
    parser.addini(
        "durable_database_url",
        "A Postgres server for scratch databases; by default DURABLE_DATABASE_URL, else an embedded one.",
        default="",
    )


@pytest.fixture(scope="session")
def durable_server(pytestconfig: pytest.Config) -> Iterator[str]:
    """The URL of a Postgres server, started for this run if none is given."""
    given = pytestconfig.getini("durable_database_url")
    if given:
        yield given
        return
    from durable import dev

    with dev.postgres(durable=False) as server:
        yield server.url


@pytest.fixture(scope="session")
def durable_template(durable_server: str) -> Iterator[str]:
    """The name of a migrated database, from which others are copied in milliseconds."""
    from sqlalchemy import create_engine

    from durable import migrate, scratch

    with scratch.database(durable_server, f"durable_template_{uuid4().hex[:8]}") as url:
        engine = create_engine(url)
        migrate.migrate(engine)
        engine.dispose()
        yield url.database or ""


@pytest.fixture(scope="session")
def durable_database(durable_server: str, durable_template: str) -> Iterator[str]:
    """The URL of a migrated scratch database, dropped at the end of the run."""
    from durable import scratch

    with scratch.database(durable_server, f"durable_test_{uuid4().hex[:8]}", template=durable_template) as url:
        yield url.render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def durable_runtime(durable_database: str) -> Iterator[Runtime]:
    """The runtime on the scratch database, for the whole run."""
    from durable import runtime

    # a broker that the environment may name is somebody's real one
    made = runtime.configure(database_url=durable_database, redis_url=None, rabbitmq_url=None)
    yield made
    made.engine.dispose()


@pytest.fixture
def durable(durable_runtime: Runtime) -> Iterator[Runtime]:
    """An empty `durable` on a scratch database, at the present time."""
    from durable import runtime, scratch

    runtime.use(durable_runtime)
    yield durable_runtime
    runtime.use(durable_runtime)
    durable_runtime.clock.reset()
    scratch.empty(durable_runtime.engine)

"""The demo's stage: servers, a scratch database and two worker processes, all of which end with it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from redis import Redis, RedisError
from sqlalchemy import URL, Engine, Row, text
from sqlalchemy.exc import DBAPIError

import durable
from actors.models import create_tables
from durable import dev, migrate, scratch
from durable.dev.home import Home, home_in
from durable.dev.process import Child, start
from durable.runtime import Runtime

ROOT = Path(__file__).resolve().parents[1]
COMMAND = (sys.executable, "-m", "dramatiq", "durable.actors", "-p", "1", "-t", "4")
MODULE = "actors.demo_workflows"
CONNECTION = "shop worker"
"""How the connections of a worker are called in Postgres, before its process id."""
WORKERS = 2
PATIENCE = 90.0
LOOK_EVERY = 0.02
SHORT_HOUR = "1s"


class DemoFailed(Exception):
    """Something did not happen that should have; the message says what."""

    logs: Sequence[str] = ()
    """How the workers' logs end."""


@dataclass
class Command:
    """One `dramatiq durable.actors`, which has one worker process."""

    child: Child
    home: Home
    code: int | None = None

    @property
    def ended(self) -> bool:
        """Whether it has ended; its guardian tells its exit code once."""
        if self.code is None:
            self.code = self.child.wait()
        return self.code is not None

    def end(self) -> None:
        """End it at once, with its worker process: the database that it works on goes too."""
        if not self.ended:
            with suppress(ProcessLookupError):
                os.killpg(self.child.pid, signal.SIGKILL)
        self.child.stop()


@dataclass
class Stage:
    """Where the demo happens."""

    runtime: Runtime
    owns_redis: bool
    commands: list[Command] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    killed: int = 0

    @property
    def engine(self) -> Engine:
        """The engine of the scratch database."""
        return self.runtime.engine

    def rows(self, question: str, **values: object) -> list[Row[Any]]:
        """Return the database's answer to a question."""
        with self.runtime.statement() as conn:
            return list(conn.execute(text(question), values))

    def ask(self, question: str, **values: object) -> Any:
        """Return the database's answer to a question with one answer."""
        [[answer]] = self.rows(question, **values)
        return answer

    def name_of(self, worker: str | None) -> str:
        """Return what a worker is called in the story."""
        return self.names.get(worker or "", "another worker")

    def until(self, condition: Callable[[], Any], what: str, tick: Callable[[], object] = lambda: None) -> Any:
        """Wait until something can be seen, and return it; `tick` is called at every look."""
        deadline = time.monotonic() + PATIENCE
        while not (found := condition()):
            self._check_alive()
            if time.monotonic() > deadline:
                raise DemoFailed(f"For {PATIENCE:g} seconds it did not happen that {what}.")
            tick()
            time.sleep(LOOK_EVERY)
        return found

    def _check_alive(self) -> None:
        codes = [str(command.code) for command in self.commands if command.ended]
        if len(codes) > self.killed:
            raise DemoFailed(f"A worker ended that nobody had killed (exit code {', '.join(codes)}).")


@contextmanager
def a_stage() -> Iterator[Stage]:
    """Give servers and an empty shop; nothing of it is left afterwards."""
    namespace = f"demo_{uuid4().hex[:8]}"
    with ExitStack() as stack:
        postgres = stack.enter_context(dev.postgres())
        redis = stack.enter_context(dev.redis())
        url = stack.enter_context(database(postgres.url, namespace))
        check_redis(redis.url)
        stack.enter_context(
            environment(
                DURABLE_DATABASE_URL=url.set(drivername="postgresql").render_as_string(hide_password=False),
                DURABLE_REDIS_URL=redis.url,
                DURABLE_REDIS_NAMESPACE=namespace,
                DURABLE_MODULES=MODULE,
                SHOP_HOUR=SHORT_HOUR,
                PYTHONPATH=str(ROOT),
            )
        )
        stage = Stage(durable.configure(), owns_redis=redis.pid is not None)
        stack.callback(stage.engine.dispose)
        migrate.migrate(stage.engine)
        create_tables(stage.engine)
        yield stage


@contextmanager
def database(server: str, name: str) -> Iterator[URL]:
    """Give a database of the demo's own, also on a server that is not."""
    with ExitStack() as stack:
        try:
            url = stack.enter_context(scratch.database(server, name))
        except DBAPIError as error:
            raise DemoFailed(f"The demo cannot make a database of its own: {error.orig}") from None
        yield url


def check_redis(url: str) -> None:
    """Make sure that there is a Redis, before anybody waits for it."""
    try:
        with Redis.from_url(url) as client:
            client.ping()
    except (RedisError, ValueError) as error:
        raise DemoFailed(f"There is no Redis to use: {error}") from None


@contextmanager
def workers(stage: Stage) -> Iterator[None]:
    """Start the workers and wait until both are at work; they end however this ends."""
    with ExitStack() as stack:
        try:
            stage.commands += [start_worker(stack) for _ in range(WORKERS)]
            stage.until(lambda: len(known_workers(stage)) == WORKERS, "both workers were ready")
            for number, worker in enumerate(known_workers(stage), start=1):
                stage.names[worker.id] = f"worker {number} (process {worker.pid})"
            yield
        except DemoFailed as failed:
            failed.logs = [command.home.last_words() for command in stage.commands]
            raise


def start_worker(stack: ExitStack) -> Command:
    """Start a worker command, which ends with the stack, or when this process is killed."""
    home = stack.enter_context(home_in(None, None))
    command = Command(start(COMMAND, home, stop_signal=signal.SIGTERM, port=None), home)
    stack.callback(command.end)
    return command


def known_workers(stage: Stage) -> list[Row[Any]]:
    """Return the worker processes that have said that they live."""
    return stage.rows("SELECT id, pid FROM durable.workers ORDER BY started_at, id")


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set variables for the processes started meanwhile; other settings of durable are not theirs."""
    before = dict(os.environ)
    for name in before:
        if name.startswith("DURABLE_") and name != "DURABLE_PG_BIN":
            del os.environ[name]
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)

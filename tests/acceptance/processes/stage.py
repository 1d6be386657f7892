"""Real servers that can be stopped and started, and real worker processes that can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import redis
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from durable import Workflow, migrate, runtime
from durable.dev import postgresql, valkey
from durable.dev.home import Home, home_in, unprivileged_account
from durable.dev.process import free_port
from durable.runtime import Runtime
from durable.settings import Settings
from tests.acceptance.processes.app import Base, Subject
from tests.invariants import violations
from tests.waiting import PATIENCE, until

ROOT = Path(__file__).parents[3]


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started and that have not ended."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class OwnServer:
    """A server on a port of its own, which a test may stop, kill and start again on its data."""

    def __init__(self, kind: Any, home: Home) -> None:
        self.kind, self.home, self.port = kind, home, free_port()
        self._process: subprocess.Popen[bytes] | None = None
        kind.prepare(home)

    @property
    def url(self) -> str:
        return str(self.kind.url(self.port))

    def start(self) -> None:
        account = self.home.account
        with self.home.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.kind.command(self.home, self.port),
                stdout=log,
                stderr=log,
                cwd=self.home.path,
                user=None if account is None else account.uid,
                group=None if account is None else account.gid,
                extra_groups=None if account is None else [],
                start_new_session=True,
            )
        until(lambda: self.kind.is_ready(self.port), "the server answers")

    def send(self, name: signal.Signals) -> None:
        """Freeze it, or have it go on."""
        assert self._process is not None
        self._process.send_signal(name)

    def stop(self, how: signal.Signals | None = None) -> None:
        if self._process is not None:
            self._process.send_signal(how or self.kind.stop_signal)
            self._process.wait(30)
            self._process = None


class WorkerCommand:
    """`dramatiq durable.actors` with one worker process."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                command, env=environment, cwd=ROOT, stdout=file, stderr=file, start_new_session=True
            )

    @property
    def worker_pid(self) -> int:
        """The process that runs the steps: a child of the command."""
        return children_of(self.process.pid)[0]

    def signal_worker(self, name: signal.Signals) -> None:
        os.kill(self.worker_pid, name)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def end(self) -> None:
        if not self.ended:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    @property
    def told(self) -> str:
        return self.log.read_text(errors="replace")


class Stage:
    """One test's servers, workers and ways to look at what happened."""

    def __init__(self, database: OwnServer, broker: OwnServer, folder: Path) -> None:
        self.database, self.broker, self.folder = database, broker, folder
        self.workers: list[WorkerCommand] = []
        self.runtime = Runtime(Settings(database_url=database.url, redis_url=broker.url))
        runtime.use(self.runtime)

    @property
    def engine(self) -> Engine:
        return self.runtime.engine

    @property
    def redis(self) -> redis.Redis:
        return redis.Redis.from_url(self.broker.url)

    @property
    def environment(self) -> dict[str, str]:
        own = {key: value for key, value in os.environ.items() if not key.startswith("DURABLE_")}
        urls = {"DURABLE_DATABASE_URL": self.database.url, "DURABLE_REDIS_URL": self.broker.url}
        return own | urls | {"DURABLE_MODULES": "tests.acceptance.processes.app", "PYTHONPATH": str(ROOT)}

    def start_worker(self, *, threads: int = 4, ready: bool = True, **settings: str) -> WorkerCommand:
        """Start a worker command with one process; settings are variables without their DURABLE_."""
        given = {f"DURABLE_{name.upper()}": value for name, value in settings.items()}
        command = [sys.executable, "-m", "dramatiq", "durable.actors", "-p", "1", "-t", str(threads)]
        worker = WorkerCommand(command, self.environment | given, self.folder / f"worker-{len(self.workers)}.log")
        self.workers.append(worker)
        if ready:
            until(lambda: "ready for action" in worker.told or worker.ended, "the worker is ready")
            assert not worker.ended, worker.told
        return worker

    def run_command(self, *command: str, **settings: str) -> WorkerCommand:
        """Start any Python module's command, as `run_command("durable.cli", "relay")`."""
        given = {f"DURABLE_{name.upper()}": value for name, value in settings.items()}
        started = WorkerCommand(
            [sys.executable, "-m", *command], self.environment | given, self.folder / f"worker-{len(self.workers)}.log"
        )
        self.workers.append(started)
        return started

    def arm(self, point: str) -> tuple[str, Path]:
        """Return the setting of a failpoint, and the file whose presence makes it deadly once."""
        file = self.folder / f"armed-{uuid4().hex}"
        return f"{point}={file}", file

    def subjects(self, count: int) -> list[Subject]:
        """Make committed heroes that belong to no session."""
        with Session(self.engine, expire_on_commit=False) as session, session.begin():
            made = [Subject(note="") for _ in range(count)]
            session.add_all(made)
        return made

    def create(self, workflow_class: type[Workflow[Any]], **options: Any) -> Workflow[Any]:
        return workflow_class.create(self.subjects(1)[0], **options)

    def ask(self, question: str, **values: object) -> Any:
        """Return the database's answer to a question: one value."""
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            return conn.execute(text(question), values).scalar()

    def rows(self, question: str, **values: object) -> list[tuple[Any, ...]]:
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            return [tuple(row) for row in conn.execute(text(question), values)]

    def count(self, state: str) -> int:
        return int(self.ask("SELECT count(*) FROM durable.workflows WHERE state = :state", state=state))

    def await_finished(self, count: int, *, seconds: float = PATIENCE) -> None:
        until(lambda: self.count("finished") >= count, f"{count} workflows are finished", seconds=seconds)

    def successes(self) -> dict[str, int]:
        """Return how often each step was completed."""
        return dict(self.rows("SELECT step, count(*) FROM durable.executions WHERE outcome = 'success' GROUP BY step"))

    def began(self) -> int:
        """Return how many bodies have begun, by the journal that they keep."""
        return int(self.ask("SELECT count(*) FROM journal WHERE event = 'began'"))

    def effects(self, workflow_id: object) -> dict[str, int]:
        """Return how often each step's effect stands in the ledger."""
        query = "SELECT step, count(*) FROM effects WHERE workflow_id = :id GROUP BY step"
        return dict(self.rows(query, id=workflow_id))

    def wrong_effects(self) -> list[tuple[Any, ...]]:
        """Return completed steps of chains whose effect is not there exactly once, and effects of no completed step."""
        return self.rows(
            """SELECT coalesce(x.workflow_id, f.workflow_id), coalesce(x.step, f.step), x.n, f.n
               FROM (SELECT e.workflow_id, e.step, count(*) n FROM durable.executions e
                     JOIN durable.workflows w ON w.id = e.workflow_id AND w.name IN ('chain', 'later')
                     WHERE e.outcome = 'success' GROUP BY 1, 2) x
               FULL JOIN (SELECT f.workflow_id, f.step, count(*) n FROM effects f
                          JOIN durable.workflows w ON w.id = f.workflow_id AND w.name IN ('chain', 'later')
                          GROUP BY 1, 2) f USING (workflow_id, step)
               WHERE x.n IS DISTINCT FROM 1 OR f.n IS DISTINCT FROM 1"""
        )

    def dead_letters(self) -> int:
        return sum(int(self.redis.zcard(key)) for key in self.redis.scan_iter("dramatiq:*.XQ"))

    def assert_sound(self) -> None:
        """Every invariant holds, every effect stands once, and no message is a dead letter."""
        assert violations(self.engine) == {}
        assert self.wrong_effects() == []
        assert self.dead_letters() == 0

    def end(self) -> None:
        for worker in self.workers:
            worker.end()
        self.engine.dispose()


@contextmanager
def a_stage(folder: Path) -> Iterator[Stage]:
    """Give servers with an empty, migrated database."""
    settings = {**postgresql.FORGETFUL, "max_connections": "200"}
    kinds = (postgresql.Postgres(postgresql.find_installation(), settings), valkey.find_kind(durable=False))
    with home_in(None, unprivileged_account()) as one, home_in(None, unprivileged_account()) as other:
        database, broker = (OwnServer(kind, home) for kind, home in zip(kinds, (one, other), strict=True))
        before = runtime._current
        try:
            database.start()
            broker.start()
            stage = Stage(database, broker, folder)
            _prepare(stage.engine)
            try:
                yield stage
            finally:
                stage.end()
        finally:
            database.stop(signal.SIGQUIT)
            broker.stop(signal.SIGKILL)
            runtime._current = before


def _prepare(engine: Engine) -> None:
    migrate.migrate(engine)
    Base.metadata.create_all(engine)
    with engine.begin() as conn:
        conn.execute(text("CREATE TABLE journal (id serial, workflow_id uuid, event text, pid int)"))

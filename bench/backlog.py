"""How fast a backlog is drained, beside plain Dramatiq: `python3 dev.py python -m bench.backlog`.

Both sides have a worker command of their own, with 2 processes of 8 threads each, which is up but stopped while its
backlog builds. A pass lasts from the moment they go on until Redis has no message left that is not acknowledged. Plain
messages are not stored, claimed or settled: the ratio is the price of a step that is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import redis
from rich.console import Console
from rich.table import Table

from bench import plain
from durable import Workflow, dev, migrate, runtime, step

MESSAGES = 3_000
PASSES = 3
PROCESSES, THREADS = 2, 8
PATIENCE = 60.0
NAMESPACE = "bench_durable"
ROOT = Path(__file__).parents[1]


class Nothing(Workflow[None], name="nothing", unique="none"):
    """Do nothing, durably."""

    @step
    def nothing(self) -> None:
        """Do nothing."""


@dataclass
class Side:
    """A worker command, and what was measured of it."""

    worker: subprocess.Popen[bytes]
    client: redis.Redis
    namespace: str
    send: Callable[[], None]
    """Builds the backlog."""
    rates: list[float] = field(default_factory=list)
    """Messages a second, per pass."""
    pushes: list[float] = field(default_factory=list)
    """Pushes per message, per pass."""

    def measure(self) -> None:
        """Have a backlog drained."""
        pushed = self._pushed
        with self._stopped():
            self.send()
            await_true(lambda: self._left == MESSAGES, "the backlog is there")
        start = time.perf_counter()
        await_true(lambda: self._left == 0, "the backlog is drained")
        self.rates.append(MESSAGES / (time.perf_counter() - start))
        self.pushes.append((self._pushed - pushed) / MESSAGES)

    @contextmanager
    def _stopped(self) -> Iterator[None]:
        os.killpg(self.worker.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.worker.pid, signal.SIGCONT)

    @property
    def _left(self) -> int:
        """How many messages are not acknowledged."""
        return int(self.client.hlen(f"{self.namespace}:default.msgs"))

    @property
    def _pushed(self) -> int:
        counts = self.client.info("commandstats").get("cmdstat_rpush", {})
        return int(counts.get("calls", 0))


def await_true(condition: Callable[[], bool], what: str) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"after {PATIENCE:g} s it is still not so that {what}")
        time.sleep(0.01)


@contextmanager
def worker(module: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """Give a worker command all of whose processes are ready."""
    command = [sys.executable, "-m", "dramatiq", module, "--processes", str(PROCESSES), "--threads", str(THREADS)]
    with TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                command, env=os.environ | variables, cwd=ROOT, stdout=file, stderr=file, start_new_session=True
            )
        try:
            ready = "Worker process is ready for action"
            await_true(lambda: log.read_text(errors="replace").count(ready) == PROCESSES, "the workers are ready")
            yield process
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a worker command with all its processes."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def send_workflows() -> None:
    """Create the workflows and wait until their messages are sent."""
    now = runtime.current()
    Nothing.create_many([None] * MESSAGES)
    assert now.courier is not None
    now.courier.flush(PATIENCE)


def send_plain(url: str) -> Callable[[], None]:
    """Return what sends as many plain messages."""
    actor = plain.declare(url)

    def send() -> None:
        for _ in range(MESSAGES):
            actor.send()

    return send


def report(ours: Side, theirs: Side) -> Table:
    """Return the figures."""
    title = f"{MESSAGES:,} steps or messages that do nothing, {PROCESSES} processes of {THREADS} threads"
    table = Table("pass", "durable", "plain Dramatiq", "ratio", "durable's pushes per message", title=title)
    ratios = [mine / other for mine, other in zip(ours.rates, theirs.rates, strict=True)]
    for number, rates in enumerate(zip(ours.rates, theirs.rates, ratios, ours.pushes, strict=True), 1):
        table.add_row(str(number), *(form.format(rate) for form, rate in zip(_FORMS, rates, strict=True)))
    middle = (median(ours.rates), median(theirs.rates), median(ratios), max(ours.pushes))
    table.add_row("median", *(form.format(rate) for form, rate in zip(_FORMS, middle, strict=True)))
    return table


_FORMS = ("{:,.0f}/s", "{:,.0f}/s", "{:.2f}", "{:.3f}")


def main() -> None:
    """Measure and print a table."""
    with dev.postgres(durable=True) as database, dev.redis(durable=False) as server:
        now = runtime.configure(database_url=database.url, redis_url=server.url, redis_namespace=NAMESPACE)
        migrate.migrate(now.engine)
        urls = {"DURABLE_DATABASE_URL": database.url, "DURABLE_REDIS_URL": server.url}
        names = {"DURABLE_REDIS_NAMESPACE": NAMESPACE, "DURABLE_MODULES": "bench.backlog"}
        with (
            worker("durable.actors", **urls, **names) as durable_worker,
            worker("bench.plain", BENCH_PLAIN_URL=server.url) as plain_worker,
        ):
            client = redis.Redis.from_url(server.url)
            ours = Side(durable_worker, client, NAMESPACE, send_workflows)
            theirs = Side(plain_worker, client, plain.NAMESPACE, send_plain(server.url))
            for _ in range(PASSES):
                theirs.measure()
                ours.measure()
        assert Nothing.count(state="finished") == PASSES * MESSAGES
        now.engine.dispose()
    Console().print(report(ours, theirs))


if __name__ == "__main__":
    main()

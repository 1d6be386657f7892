"""How soon an idle worker starts a step, and what its idleness costs: `python3 dev.py python -m bench.latency`.

Two workers wait at the same time, alike but for their consumers: durable's, which sleeps in Redis until there is a
message, and Dramatiq's own, which asks again and again. Each has a database and a namespace in Redis of its own, and
they get their workflows in turn. All times are those of one machine's clock: of the caller before `create()`, and of
the step's body in its first line, which sends it to the caller.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

from dramatiq.brokers.redis import _RedisConsumer
from rich.console import Console
from rich.table import Table

from durable import Workflow, dev, migrate, runtime, scratch, step
from durable.broker.redis import BlockingRedisBroker
from durable.runtime import Runtime
from durable.settings import Settings

ROUNDS = 20
WARM_UP = 3
IDLE = (0.3, 0.7)
"""Seconds for which a worker has nothing to do before each workflow."""
LEAST_RATIO = 10.0
"""How many times sooner a step starts at least: times are those of the machine, ratios are ours."""
IDLE_FOR = 20.0
"""Seconds over which the cost of idleness is measured."""
PATIENCE = 30.0
ROOT = Path(__file__).parents[1]

if os.environ.get("BENCH_CONSUMER") == "stock":
    # A worker imports this module for its workflow, before it makes its consumers.
    BlockingRedisBroker.consumer_class = property(lambda _: _RedisConsumer)  # type: ignore[assignment,method-assign]


class Ping(Workflow[None], name="ping", unique="none"):
    """One step, which says when it started."""

    @step
    def answer(self) -> None:
        """Send the time to whoever measures."""
        started = time.time_ns()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
            line.sendto(str(started).encode(), ("127.0.0.1", int(os.environ["BENCH_PORT"])))


@dataclass
class Side:
    """A worker, and what was measured of it."""

    name: str
    runtime: Runtime
    line: socket.socket
    worker: subprocess.Popen[bytes]
    waits: list[float] = field(default_factory=list)
    """Milliseconds from before `create()` to the first line of the step."""
    idle: float = 0.0
    """Percent of a core."""

    def ping(self) -> float:
        """Create a workflow and return after how many milliseconds its step started."""
        runtime.use(self.runtime)
        before = time.time_ns()
        Ping.create(None)
        return (int(self.line.recv(64)) - before) / 1e6


@contextmanager
def working(name: str, *, database: str, redis: str) -> Iterator[Side]:
    """Give a worker process that is ready, on a database of its own."""
    with ExitStack() as stack:
        url = stack.enter_context(scratch.database(database, f"bench_{name}")).render_as_string(hide_password=False)
        given: dict[str, Any] = {"database_url": url, "redis_url": redis, "redis_namespace": f"bench_{name}"}
        now = Runtime(Settings(**given))
        stack.callback(lambda: now.engine.dispose())
        migrate.migrate(now.engine)
        line = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        line.bind(("127.0.0.1", 0))
        line.settimeout(PATIENCE)
        worker = stack.enter_context(_worker(name, now, line))
        yield Side(name, now, line, worker)


@contextmanager
def _worker(name: str, now: Runtime, line: socket.socket) -> Iterator[subprocess.Popen[bytes]]:
    environment = os.environ | {
        "DURABLE_DATABASE_URL": now.engine.url.render_as_string(hide_password=False),
        "DURABLE_REDIS_URL": str(now.settings.redis_url),
        "DURABLE_REDIS_NAMESPACE": now.settings.redis_namespace,
        "DURABLE_MODULES": "bench.latency",
        "BENCH_CONSUMER": name,
        "BENCH_PORT": str(line.getsockname()[1]),
    }
    command = [sys.executable, "-m", "dramatiq", "durable.actors", "--processes", "1", "--threads", "8"]
    with TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as file:
            process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=file, stderr=file)
        try:
            _await_ready(process, log)
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)


def _await_ready(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while "ready for action" not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the worker does not start:\n{log.read_text(errors='replace')}")
        time.sleep(0.05)


def measure_waits(sides: list[Side]) -> None:
    """Give each side its workflows in turn, so that whatever else the machine does meets both."""
    for number in range(-WARM_UP, ROUNDS):
        idle = random.uniform(*IDLE)
        for side in sides:
            time.sleep(idle / len(sides))
            took = side.ping()
            if number >= 0:
                side.waits.append(took)


def measure_idleness(sides: list[Side]) -> None:
    """Let all sides be idle together for a while."""
    time.sleep(1)
    before = [_seconds_of_cpu(side.worker.pid) for side in sides]
    time.sleep(IDLE_FOR)
    for side, spent in zip(sides, before, strict=True):
        side.idle = 100 * (_seconds_of_cpu(side.worker.pid) - spent) / IDLE_FOR


def _seconds_of_cpu(pid: int) -> float:
    """Return what a process and its children have used so far."""
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    own = sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
    return own + sum(_seconds_of_cpu(int(child)) for child in children)


def report(durable: Side, stock: Side) -> Table:
    """Return the figures."""
    table = Table(
        "", "durable's consumer", "Dramatiq's own", "ratio", title=f"create() to first step, n = {ROUNDS} each"
    )
    for label, at in (("p50", 49), ("p95", 94)):
        ours, theirs = (quantiles(side.waits, n=100, method="inclusive")[at] for side in (durable, stock))
        table.add_row(label, f"{ours:.1f} ms", f"{theirs:.1f} ms", f"{theirs / ours:.1f}")
    lowest, highest = (f"{min(side.waits):.1f} to {max(side.waits):.1f} ms" for side in (durable, stock))
    table.add_row("all", lowest, highest, f"{median(stock.waits) / median(durable.waits):.1f} (p50)")
    idle = f"{stock.idle / durable.idle:.1f}" if durable.idle else ""
    table.add_row(f"CPU while idle, {IDLE_FOR:g} s", f"{durable.idle:.2f} %", f"{stock.idle:.2f} %", idle)
    return table


def main() -> None:
    """Measure and print a table."""
    with dev.postgres(durable=True) as database, dev.redis(durable=False) as redis:
        with (
            working("durable", database=database.url, redis=redis.url) as ours,
            working("stock", database=database.url, redis=redis.url) as stock,
        ):
            measure_waits([ours, stock])
            measure_idleness([ours, stock])
        Console().print(report(ours, stock))
    if median(stock.waits) < LEAST_RATIO * median(ours.waits):
        raise SystemExit(
            f"an idle worker starts a step less than {LEAST_RATIO:g} times sooner than Dramatiq's own does"
        )


if __name__ == "__main__":
    main()

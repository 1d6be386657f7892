"""The demo's crash: a worker process that is really killed, and what becomes of its step."""

from __future__ import annotations

import operator
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, make_url, text
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from actors.demo_screen import say
from actors.order_fulfilment import OrderFulfilment
from durable import reaper
from durable.runtime import Runtime

WORKER = "doomed worker"

_CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = :worker"
_HAVE_WRITTEN = " AND state = 'idle in transaction' AND query LIKE 'INSERT INTO shop.stock_movements%'"
_MOVEMENTS = "SELECT count(*) FROM shop.stock_movements WHERE order_id = :order"
_LEASE_RAN_OUT = "SELECT lease_until < now() FROM durable.executions WHERE id = :execution"


def kill_a_worker(runtime: Runtime, fulfilment: OrderFulfilment) -> None:
    """Have another process run the first step, and kill it once it has written."""
    [scheduled] = fulfilment.history
    with a_worker(runtime, str(scheduled.id)) as worker:
        until(lambda: ask(runtime.engine, _CONNECTIONS + _HAVE_WRITTEN, worker=WORKER))
        [running] = fulfilment.history
        say(f"Process {worker.pid} runs {running.step}, which is {running.state}.")
        say("It has taken the goods off the shelf, but not committed yet.")
        worker.send_signal(signal.SIGKILL)
        say(f"It is ended by {signal.Signals(-worker.wait()).name}.")
    until(lambda: not ask(runtime.engine, _CONNECTIONS, worker=WORKER))
    movements = ask(runtime.engine, _MOVEMENTS, order=fulfilment.hero.id)
    say(f"What it had written is undone: the order has {movements} stock movements.")


def recover(runtime: Runtime, fulfilment: OrderFulfilment) -> None:
    """Let the reaper find the step once the lease of the dead worker has run out."""
    lease = runtime.settings.lost_worker_after.total_seconds()
    say(f"The step belongs to the dead worker until its lease runs out, {lease:g} seconds after its last sign of life.")
    [lost] = fulfilment.history
    until(lambda: ask(runtime.engine, _LEASE_RAN_OUT, execution=lost.id))
    say(f"Now the reaper recovers {reaper.recover_lost_claims(runtime)} step, and it is run again:\n")


@contextmanager
def a_worker(runtime: Runtime, execution_id: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a worker process on the same database; it never outlives the demo."""
    url = make_url(str(runtime.settings.database_url)).update_query_dict({"application_name": WORKER})
    environment = {**os.environ, "DURABLE_DATABASE_URL": url.render_as_string(hide_password=False)}
    with subprocess.Popen([sys.executable, "-m", "actors.demo_worker", execution_id], env=environment) as worker:
        try:
            yield worker
        finally:
            worker.kill()


def ask(engine: Engine, question: str, **values: object) -> object:
    """Return the database's answer to a question."""
    with engine.connect() as conn:
        return conn.scalar(text(question), values)


def until(condition: Callable[[], object]) -> None:
    """Ask again and again, for 15 seconds at most, until the answer is yes."""
    Retrying(retry=retry_if_result(operator.not_), stop=stop_after_delay(15), wait=wait_fixed(0.05))(condition)

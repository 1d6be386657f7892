"""A worker process: Dramatiq's threads run the steps, loops of ours keep it alive, relay and reap beside them."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import dramatiq
from dramatiq.middleware import Middleware
from dramatiq.worker import Worker as DramatiqWorker
from pydantic import ValidationError
from sqlalchemy.exc import OperationalError

from durable import executor, reaper, registry, relay, runtime
from durable.broker import Patient, read_id, required_broker
from durable.descent import end_with_parent
from durable.errors import DurableError
from durable.farewell import Farewell
from durable.loops import Loop
from durable.pulse import Pulse
from durable.reaper import Reaper
from durable.runtime import Runtime
from durable.store import outbox

log = logging.getLogger("durable.worker")

PUT_BACK_FOR = timedelta(milliseconds=500)
"""The shortest time for which a message is put back."""
RET_IMPORT = 2
"""Dramatiq's exit code for a process that cannot start."""


def prepare() -> Patient:
    """Make this process's broker Dramatiq's own, and give it an actor for every workflow class, those to come too."""
    broker = required_broker(runtime.current().broker)
    if not any(isinstance(middleware, WorkerLife) for middleware in broker.middleware):
        broker.put_back = put_back
        broker.add_middleware(WorkerLife())
        dramatiq.set_broker(broker)
        _declare(broker, "durable.drain", drain_once, queue="default", priority=0)
        registry.subscribe(lambda workflow_class: declare(broker, workflow_class))
    return broker


def prepare_under_dramatiq() -> None:
    """Where the command `dramatiq` imports an application's own module, prepare with its first workflow class."""
    if "dramatiq.cli" in sys.modules:
        registry.subscribe(lambda _: _prepare_or_exit())


def _prepare_or_exit() -> None:
    with explaining():
        prepare()


@contextmanager
def explaining() -> Iterator[None]:
    """End a worker that cannot start with a sentence, and the exit code that tells Dramatiq's master so."""
    try:
        yield
    except (DurableError, ValidationError) as error:
        sys.stderr.write(f"durable: {error}\n")
        raise SystemExit(RET_IMPORT) from None


def declare(broker: Patient, workflow_class: type[Any]) -> None:
    """Declare the actor of a workflow class; a newer version shares it with the older ones."""
    options = workflow_class.options
    if options.name in broker.actors:
        return

    def receive(execution_id: object = None, *args: object, **kwargs: object) -> None:
        receive_message(runtime.current(), options.name, execution_id)

    _declare(broker, options.name, receive, queue=options.queue, priority=options.priority)


def receive_message(now: Runtime, name: str, execution_id: object) -> None:
    """Run what a message is about. Never raises: whether a message means anything is for the rows to say."""
    known = read_id(execution_id)
    workflow_class = registry.newest(name)
    if known is None or workflow_class is None:
        log.warning("a message for %s names %.200r, which is not the id of an execution: dropped", name, execution_id)
        return
    try:
        executor.perform(now, workflow_class, known)
    except Exception:
        log.exception("execution %s could not be run; its message will be sent again", known)


def drain_once() -> None:
    """Send what is due and recover what was lost, once: for those who call it on a schedule of their own."""
    relay.drain(runtime.current())
    reaper.recover_lost_claims(runtime.current())


def put_back(execution_id: UUID) -> None:
    """Have a message sent again after a while, to a worker that has its class."""
    now = runtime.current()
    with now.engine.begin() as conn:
        outbox.put_back(conn, now.clock, execution_id, wait=PUT_BACK_FOR)


class WorkerLife(Middleware):
    """Begins and ends with Dramatiq's worker."""

    def __init__(self) -> None:
        self._pulse: Pulse | None = None
        self._loops: list[Loop] = []
        self._farewell: Loop | None = None

    def after_process_boot(self, broker: Any) -> None:
        """Check that the database fits, before there are threads that would keep a process from ending.

        Dramatiq's command is not outlived: a process of its own logs into a pipe that nobody reads then, and may
        stumble over that where it should end.
        """
        end_with_parent(signal.SIGKILL)
        _check_schema(runtime.current())

    def before_worker_boot(self, broker: Any, worker: DramatiqWorker) -> None:
        """Start the loops."""
        now = runtime.current()
        broker.begin(threads=worker.worker_threads)
        self._pulse = _pulse(now, broker, worker)
        self._loops = [self._pulse.loop(), *_inner_loops(now)]
        for loop in self._loops:
            loop.start()

    def before_worker_shutdown(self, broker: Any, worker: DramatiqWorker) -> None:
        """Take nothing new, give running steps their time; afterwards they are given back."""
        broker.retire()
        self._farewell = Farewell(runtime.current(), worker, partial(self._leave, broker)).loop()
        self._farewell.start()

    def after_worker_shutdown(self, broker: Any, worker: DramatiqWorker) -> None:
        """Leave; the farewell ends first, or it would take what this process runs next for what is left to end."""
        if self._farewell is not None:
            self._farewell.stop()
        self._leave(broker)

    def _leave(self, broker: Patient) -> None:
        """Send what is left to send, return what was fetched and not begun, and leave."""
        for loop in self._loops:
            loop.stop()
        courier = runtime.current().courier
        if courier is not None:
            courier.flush()
        if self._pulse is None:
            return
        if _returns_messages(broker):
            self._pulse.leave()
        else:
            self._pulse.disconnect()  # silent, but known: a reaper will return what this worker could not


def _declare(broker: Patient, name: str, function: Any, *, queue: str, priority: int) -> None:
    options: dict[str, Any] = {"max_retries": 0, "time_limit": float("inf")}
    dramatiq.actor(actor_name=name, queue_name=queue, priority=priority, broker=broker, **options)(function)


def _returns_messages(broker: Patient) -> bool:
    """Return what Dramatiq leaves behind, if the broker lets us: once a worker has left, nobody looks for it."""
    try:
        broker.revive(getattr(broker, "broker_id", None), broker.get_declared_queues())
    except Exception as error:
        log.warning("messages that this worker had fetched could not be returned: %s", error)
        return False
    return True


def _pulse(now: Runtime, broker: Any, worker: DramatiqWorker) -> Pulse:
    queues = broker.get_declared_queues()
    served = worker.consumer_whitelist & queues if worker.consumer_whitelist else queues
    broker_id = getattr(broker, "broker_id", None)
    return Pulse(now, broker_id=broker_id, queues=sorted(served), classes=sorted(registry.loaded()))


def _inner_loops(now: Runtime) -> list[Loop]:
    loops = []
    if now.settings.relay_in_workers:
        loops.append(relay.relay_loop(now))
    if now.settings.reaper_in_workers:
        loops.append(Reaper(now).loop())
    return loops


def _check_schema(now: Runtime) -> None:
    logging.getLogger("alembic").setLevel(logging.WARNING)
    from durable import migrate  # late, as Alembic has much to say when it is imported

    try:
        with explaining():
            migrate.check(now.engine, may_be_ahead=True)
    except OperationalError as error:
        log.warning("the database does not answer yet: %s", error.orig)

"""The reaper: recovers what crashed workers held, by the same plan and settle that a worker would use."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from durable import verdicts
from durable.loops import Loop
from durable.post import post
from durable.runtime import Runtime
from durable.store import claims, outbox, retention, workers
from durable.store.rows import LostClaim
from durable.store.workers import Worker

log = logging.getLogger("durable.reaper")

LOOK = 1.0
SILENCE = timedelta(seconds=3)
"""How long a worker whose lock is free may be silent: its connection may have broken, and it will be back."""
SURE_AFTER = 2.0
"""Seconds for which a reaper must have seen a worker silent itself: the database may have been away, not the worker."""
BATCH = 1000
TIDY_EVERY = 60.0
_FIRST = UUID(int=0)


def recover_lost_claims(runtime: Runtime, *, limit: int = 500) -> int:
    """End every claim whose lease ran out and return how many there were.

    One pass in key order: a row that cannot be recovered is logged and passed, and never stops the others.
    """
    recovered = 0
    after = _FIRST
    while True:
        with runtime.hot() as conn:
            lost = claims.lost_claims(conn, runtime.clock, after=after, limit=limit)
        if not lost:
            return recovered
        recovered += sum(_recovers(runtime, claim) for claim in lost)
        after = lost[-1].execution_id


def delete_ended(runtime: Runtime) -> int:
    """Delete workflows that ended longer ago than `delete_after`, a batch at a time, and return how many."""
    deleted = total = _delete_batch(runtime)
    while deleted == BATCH:
        deleted = _delete_batch(runtime)
        total += deleted
    return total


def rescue_stuck(runtime: Runtime) -> int:
    """Bring back to life what damage from outside has left without anything to wake it, and return how much."""
    age = runtime.settings.stuck_scheduled_after
    with runtime.engine.begin() as conn:
        rescued = outbox.rearm_lost(conn, runtime.clock, overdue=age)
    with runtime.hot() as conn:
        rescued += retention.pause_stranded(conn, runtime.clock, age=age)
    if rescued:
        log.warning("%s workflows had nothing to wake them: their messages are written anew, or they pause", rescued)
    return rescued


class _Chore:
    """Something to do from time to time; not all processes at the same moment, and none right after its start.

    What returns True has more to do, and does it when the reaper looks next: recovery does not wait for its end.
    """

    def __init__(self, do: Callable[[Runtime], bool], every: float) -> None:
        self._do = do
        self._every = every
        self._next = time.monotonic() + every * random.uniform(0.5, 1)

    def do_when_due(self, runtime: Runtime) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._every
            if self._do(runtime):
                self._next = time.monotonic()


class Reaper:
    """Looks after the workers of all processes, and after what is left of ended workflows."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._silent_since: dict[str, float] = {}
        stuck_after = runtime.settings.stuck_scheduled_after.total_seconds()
        self._chores = [_Chore(_delete_some, TIDY_EVERY), _Chore(_rescue, stuck_after)]

    def loop(self) -> Loop:
        """Return the loop that does it all."""
        return Loop("reaper", self.tick)

    def tick(self) -> float:
        """Look once, and return for how many seconds there is nothing to do."""
        self.bury_the_dead()
        recover_lost_claims(self._runtime)
        for chore in self._chores:
            chore.do_when_due(self._runtime)
        return LOOK

    def bury_the_dead(self) -> int:
        """Take workers for dead that have been silent in front of our eyes, and return how many there were."""
        with self._runtime.hot() as conn:
            silent = workers.silent(conn, self._runtime.clock, silence=SILENCE, long_silence=self._long_silence)
        now = time.monotonic()
        self._silent_since = {worker.id: self._silent_since.get(worker.id, now) for worker in silent}
        dead = [worker for worker in silent if now - self._silent_since[worker.id] >= SURE_AFTER]
        return sum(self._buries(worker) for worker in dead)

    @property
    def _long_silence(self) -> timedelta:
        return 4 * self._runtime.settings.lost_worker_after

    def _buries(self, worker: Worker) -> bool:
        try:
            return self._bury(worker)
        except Exception as error:
            log.warning("worker %s is gone, but not forgotten yet: %s", worker.id, error)
            return False

    def _bury(self, worker: Worker) -> bool:
        """Return the messages it had fetched, then give up its claims; in this order, as the second forgets it."""
        if self._runtime.broker is not None:
            self._runtime.broker.revive(worker.broker_id, worker.queues)
        with self._runtime.hot() as conn:
            buried = workers.bury(conn, self._runtime.clock, worker.id, silence=SILENCE)
        if buried:
            log.warning("worker %s (process %s on %s) is gone", worker.id, worker.pid, worker.host)
        return buried


def _delete_batch(runtime: Runtime) -> int:
    age = runtime.settings.delete_after
    if age is None:
        return 0
    with runtime.hot() as conn:
        return retention.delete_ended(conn, runtime.clock, age=age, limit=BATCH)


def _delete_some(runtime: Runtime) -> bool:
    return _delete_batch(runtime) == BATCH


def _rescue(runtime: Runtime) -> bool:
    rescue_stuck(runtime)
    return False


def _recovers(runtime: Runtime, lost: LostClaim) -> bool:
    try:
        return _recover(runtime, lost)
    except Exception:
        log.exception("execution %s cannot be recovered", lost.execution_id)
        return False


def _recover(runtime: Runtime, lost: LostClaim) -> bool:
    settings = runtime.settings
    verdict = verdicts.crashed(settings.on_lost_worker, crashes=lost.crashes, most=settings.max_crashes)
    plan = verdicts.plan(verdict, lost, None)
    with runtime.hot() as conn:
        settled = claims.settle(conn, runtime.clock, lost, plan, expired=True, look=runtime.look)
    if settled is None:
        return False
    post(runtime, [settled.letter])
    log.warning(
        "worker %s was lost in step %s of workflow %s: %s",
        lost.worker,
        lost.step,
        lost.workflow_id,
        verdict.outcome,
    )
    return True

"""The pulse of a worker process: its signs of life, and what it learns by them of the claims it holds."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Sequence
from secrets import randbits
from typing import Any
from uuid import uuid4

import psycopg
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from durable.guard import Cause, Watch
from durable.loops import Loop
from durable.runtime import Runtime, driver_connection
from durable.states import StopRequest
from durable.store import workers
from durable.store.workers import Held, Worker

log = logging.getLogger("durable.pulse")

_OFTEN = 1.0
_LONGEST_PAUSE = 1.0
"""After an outage a reaper that is back first is sure of a silent worker within 2 s: a pulse must not be that late."""


class Pulse:
    """Says every second that this process lives, on a connection of its own whose lock is free once it does not.

    One statement does it all: it extends the leases that would run out, and tells which claims are lost, and of which
    workflows a caller has asked that they be canceled.
    """

    def __init__(
        self, runtime: Runtime, *, broker_id: str | None, queues: Sequence[str], classes: Sequence[str]
    ) -> None:
        self._runtime = runtime
        self._every = min(_OFTEN, runtime.settings.lost_worker_after.total_seconds() / 5)
        self._broker_id = broker_id
        self._queues, self._classes = list(queues), list(classes)
        self._conn: Connection | None = None

    def loop(self) -> Loop:
        """Return the loop that beats."""
        return Loop("pulse", self.tick, longest_pause=_LONGEST_PAUSE)

    def tick(self) -> float:
        """Beat once; after an error the next beat comes on a new connection."""
        try:
            driver = self._connected()
            self._beat(driver)
        except Exception:
            self.disconnect()
            raise
        return self._every

    def leave(self) -> None:
        """Say that this process ends in good order."""
        if self._conn is None:
            return
        try:
            workers.leave(driver_connection(self._conn), self._runtime.worker)
        except (psycopg.Error, DBAPIError) as error:
            log.debug("the worker could not say that it ends: %s", error)
        self.disconnect()

    def disconnect(self) -> None:
        """Let go of the connection."""
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.invalidate()
            conn.close()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._conn is None:
            self._conn = self._runtime.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            self._register(driver_connection(self._conn))
        return driver_connection(self._conn)

    def _register(self, driver: psycopg.Connection[Any]) -> None:
        me = Worker(
            id=self._runtime.worker,
            host=socket.gethostname(),
            pid=os.getpid(),
            lock_key=randbits(62),
            broker_id=self._broker_id,
            queues=self._queues,
            classes=self._classes,
        )
        workers.register(driver, self._runtime.clock, me)

    def _beat(self, driver: psycopg.Connection[Any]) -> None:
        runtime = self._runtime
        watches = runtime.guard.held
        tokens = [watch.token for watch in watches]
        held = workers.beat(driver, runtime.clock, runtime.worker, tokens, lease=runtime.settings.lost_worker_after)
        if held is None:
            self._begin_anew(driver, watches)
        else:
            _tell(watches, held)

    def _begin_anew(self, driver: psycopg.Connection[Any], watches: Sequence[Watch]) -> None:
        """Go on as another worker: this one was taken for dead, and what it held is being run by others."""
        log.warning("worker %s was silent for too long and taken for dead: it goes on under a new name", os.getpid())
        self._runtime.worker = uuid4().hex
        self._register(driver)
        _tell(watches, [])


def _tell(watches: Sequence[Watch], held: Sequence[Held]) -> None:
    """Interrupt the bodies that work for nothing: their claim is lost, or their workflow is to be canceled."""
    still = {one.token: one for one in held}
    for watch in watches:
        found = still.get(watch.token)
        if found is None:
            watch.interrupt(Cause.LOST)
        elif found.stop_requested == StopRequest.CANCEL:
            watch.interrupt(Cause.CANCEL, found.stop_reason)

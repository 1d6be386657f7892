"""One execution, from its message to its settle."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

import psycopg

from durable import heroes, registry
from durable.errors import ClaimLost
from durable.failpoints import failpoint
from durable.patience import patiently
from durable.performance import Performance
from durable.post import post
from durable.runtime import Runtime
from durable.states import WorkflowState
from durable.store import claims
from durable.store.claims import Terms
from durable.store.rows import Claim, Settled
from durable.workflow import Workflow

log = logging.getLogger("durable.executor")


def perform(
    runtime: Runtime, workflow_class: type[Workflow[Any]], execution_id: UUID, *, early: bool = False
) -> WorkflowState | None:
    """Run one execution if it can be claimed, and return the workflow's state after it.

    None means that it was not ours to run, or not ours any more when it ended. `early` ignores its due time.
    """
    failpoint("claim.before")
    with runtime.isolation.beside_others():
        claim = _claim(runtime, workflow_class, execution_id, early=early)
        if claim is not None:
            return _perform(runtime, workflow_class, claim)
    if not _is_suspicious(runtime, execution_id, early=early):
        log.debug("execution %s is not to be claimed", execution_id)
        return None
    with runtime.isolation.alone():
        claim = _claim(runtime, workflow_class, execution_id, early=early, alone=True)
        return None if claim is None else _perform(runtime, workflow_class, claim)


def _perform(runtime: Runtime, workflow_class: type[Workflow[Any]], claim: Claim) -> WorkflowState | None:
    failpoint("claim.after")
    settled = _settled(runtime, workflow_class, claim)
    failpoint("push.before")
    if settled is None:
        return None
    post(runtime, [settled.letter])
    return settled.state


def _settled(runtime: Runtime, workflow_class: type[Workflow[Any]], claim: Claim) -> Settled | None:
    of_row = registry.resolve(claim.name, claim.version) or workflow_class
    with runtime.guard.holding(claim.token) as watch:
        performance = Performance(runtime, claim, of_row, watch)
        try:
            return performance.run()
        except ClaimLost as lost:
            performance.context.logger.warning("%s: it writes nothing more", lost)
            return None
        finally:
            performance.context.close()


def _terms(runtime: Runtime, *, early: bool, alone: bool = False) -> Terms:
    """Return on which terms this process claims now: what may be paused for its next crash, it runs alone."""
    settings = runtime.settings
    suspicious = max(1, settings.max_crashes - 1)
    return Terms(runtime.worker, settings.lost_worker_after, suspicious=suspicious, alone=alone, early=early)


def _claim(
    runtime: Runtime, workflow_class: type[Workflow[Any]], execution_id: UUID, *, early: bool, alone: bool = False
) -> Claim | None:
    name = workflow_class.options.name

    def take(presence: str) -> Claim | None:
        for attempt in patiently(runtime.settings.lost_worker_after):
            with attempt, runtime.hot() as conn:
                terms = _terms(runtime, early=early, alone=alone)  # as who we are by now
                taken = claims.claim(conn, runtime.clock, execution_id, terms, name=name, presence=presence)
        return taken

    try:
        return take(heroes.presence(workflow_class.hero_classes()))
    except (psycopg.DataError, psycopg.ProgrammingError) as error:
        log.warning("cannot tell whether the hero of execution %s is there: %s", execution_id, error)
        return take(heroes.presence(()))


def _is_suspicious(runtime: Runtime, execution_id: UUID, *, early: bool) -> bool:
    with runtime.hot() as conn:
        return claims.is_suspicious(conn, runtime.clock, execution_id, _terms(runtime, early=early))

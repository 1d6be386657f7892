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
    claim = _claim(runtime, workflow_class, execution_id, early=early)
    if claim is None:
        log.debug("execution %s is not to be claimed", execution_id)
        return None
    failpoint("claim.after")
    settled = _perform(runtime, workflow_class, claim)
    failpoint("push.before")
    if settled is None:
        return None
    post(runtime, [settled.letter])
    return settled.state


def _perform(runtime: Runtime, workflow_class: type[Workflow[Any]], claim: Claim) -> Settled | None:
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


def _claim(runtime: Runtime, workflow_class: type[Workflow[Any]], execution_id: UUID, *, early: bool) -> Claim | None:
    def take(presence: str) -> Claim | None:
        for attempt in patiently(runtime.settings.lost_worker_after):
            with attempt, runtime.hot() as conn:
                taken = claims.claim(
                    conn,
                    runtime.clock,
                    execution_id,
                    name=workflow_class.options.name,
                    worker=runtime.worker,
                    lease=runtime.settings.lost_worker_after,
                    presence=presence,
                    early=early,
                )
        return taken

    try:
        return take(heroes.presence(workflow_class.hero_classes()))
    except (psycopg.DataError, psycopg.ProgrammingError) as error:
        log.warning("cannot tell whether the hero of execution %s is there: %s", execution_id, error)
        return take(heroes.presence(()))

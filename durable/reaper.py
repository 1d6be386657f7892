"""The reaper: recovers what crashed workers held, by the same plan and settle that a worker would use."""

from __future__ import annotations

import logging
from uuid import UUID

from durable import verdicts
from durable.runtime import Runtime
from durable.store import claims
from durable.store.rows import LostClaim

log = logging.getLogger("durable.reaper")

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
        state = claims.settle(conn, runtime.clock, lost, plan, expired=True)
    if state is None:
        return False
    log.warning(
        "worker %s was lost in step %s of workflow %s: %s",
        lost.worker,
        lost.step,
        lost.workflow_id,
        verdict.outcome,
    )
    return True

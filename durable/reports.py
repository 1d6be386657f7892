"""How a step's exceptions reach the people who look after it."""

from __future__ import annotations

from durable.context import StepContext
from durable.settings import ErrorReport


def report(context: StepContext, error: BaseException, *, when: str, action: str) -> None:
    """Report an exception, unless its policy keeps it quiet; a reporter that fails never harms the step."""
    again = action in ("reattempt", "reattempted")
    if when == "never" or (when == "terminal_only" and again):
        return
    reporter = context.runtime.settings.error_reporter
    if reporter is None:
        context.logger.error("the step raised %s: %s", type(error).__qualname__, action, exc_info=error)
        return
    try:
        reporter(_report(context, error, action))
    except Exception:
        context.logger.exception("the error reporter failed")


def _report(context: StepContext, error: BaseException, action: str) -> ErrorReport:
    claim = context.claim
    return ErrorReport(
        error=error,
        name=claim.name,
        workflow_id=claim.workflow_id,
        hero_type=claim.hero_type,
        hero_key=claim.hero_key,
        execution_id=claim.execution_id,
        step=claim.step,
        attempt=claim.attempt,
        action=action,
    )

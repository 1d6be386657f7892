"""Steering: flow control for the code inside a step, verbs for everyone outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NoReturn, Self
from uuid import UUID

from sqlalchemy.orm import Session

from durable import creation, durations, payloads, runtime, verbs, verdicts
from durable.context import StepContext
from durable.coroutines import awaited
from durable.durations import Duration
from durable.errors import InsideStep, InvalidInput, OutsideStep
from durable.failures import readable
from durable.handle import Handle
from durable.logs import TaggedLogger


@dataclass(frozen=True)
class Running:
    """The execution that a step is."""

    id: UUID
    step: str
    attempt: int
    idempotency_key: str
    scheduled_for: datetime
    started_at: datetime


class Steering(Handle):
    """A workflow that can be steered, from inside its step or from outside."""

    data: dict[str, Any]
    resume_input: Any

    _context: StepContext | None = None

    # --- inside a step

    @property
    def session(self) -> Session:
        """The step's session: what it writes is committed with the step's outcome, or not at all."""
        return self._inside("session").session

    @property
    def execution(self) -> Running:
        """The execution that runs; its `idempotency_key` stays the same when it runs again after a crash."""
        claim = self._inside("execution").claim
        return Running(
            id=claim.execution_id,
            step=claim.step,
            attempt=claim.attempt,
            idempotency_key=str(claim.idempotency_key),
            scheduled_for=claim.scheduled_for,
            started_at=claim.started_at,
        )

    @property
    def results(self) -> dict[str, Any]:
        """What earlier steps returned, by name."""
        return self._inside("results").results()

    @property
    def logger(self) -> TaggedLogger:
        """A logger tagged with workflow, hero, execution and step."""
        return self._inside("logger").logger

    def reattempt(self, wait: Duration | None = None) -> NoReturn:
        """End the step and run it again, after a while."""
        self._inside("reattempt()").end(verdicts.reattempted(durations.parse(wait or 0)))

    def finish(self, result: object = None) -> NoReturn:
        """End the step and the workflow with it."""
        context = self._inside("finish()")
        limit = context.runtime.settings.max_payload
        text = None if result is None else payloads.encode(result, what="the workflow's result", limit=limit)
        context.end(verdicts.finished(text))

    def fail(self, reason: str) -> NoReturn:
        """End the step and the workflow, as failed."""
        self._inside("fail()").end(verdicts.failed(reason))

    def before_execution(self) -> object:
        """Override it for what must happen before every step's body."""

    def after_execution(self) -> object:
        """Override it for what must happen after every step's body that returned."""

    def around_execution(self, run: Callable[[], object]) -> object:
        """Override it to put something around every step's body: call `run()` and return what it returns."""
        return run()

    # --- flow control inside a step, verbs outside

    def pause(
        self, reason: str | None = None, *, then: Literal["again", "next"] = "again", by: str | None = None
    ) -> Self:
        """Stop before the next step until `resume()`. In a step: end it; `then` says which step `resume()` runs."""
        _check_then(then, inside=self._context is not None)
        if self._context is not None:
            self._context.end(verdicts.paused(reason, then))
        return self._verb("pause", verbs.pause(_said(reason)), by=by, reason=reason)

    def cancel(self, reason: str | None = None, *, by: str | None = None) -> Self:
        """End the workflow as canceled. A step that is running ends first, and is recorded."""
        if self._context is not None:
            self._context.end(verdicts.canceled(reason))
        return self._verb("cancel", verbs.cancel(_said(reason)), by=by, reason=reason)

    def skip(self, reason: str | None = None, *, by: str | None = None) -> Self:
        """Pass over the step that is pending or stopped the workflow. In a step: end it as skipped."""
        if self._context is not None:
            self._context.end(verdicts.skipped(reason))
        return self._verb("skip", verbs.skip(_said(reason)), by=by, reason=reason)

    def resume(
        self,
        input: object = None,
        at: str | None = None,
        *,
        by: str | None = None,
        reason: str | None = None,
    ) -> Self:
        """Go on where it stopped, or at another step; `input` reaches that step as `self.resume_input`."""
        creation.encode_input(runtime.current(), input, "the input of resume()")
        return self._verb("resume", verbs.resume(at, input), by=by, reason=reason)

    def retry(self, from_step: str | None = None, *, by: str | None = None, reason: str | None = None) -> Self:
        """Run again from a step on: the one named, else the one that stopped it, else the first."""
        return self._verb("retry", verbs.retry(from_step), by=by, reason=reason)

    async def apause(self, reason: str | None = None, *, by: str | None = None) -> Self:
        """Pause, as `pause` does."""
        return await self._awaited(lambda: self.pause(reason, by=by))

    async def acancel(self, reason: str | None = None, *, by: str | None = None) -> Self:
        """Cancel, as `cancel` does."""
        return await self._awaited(lambda: self.cancel(reason, by=by))

    async def askip(self, reason: str | None = None, *, by: str | None = None) -> Self:
        """Skip, as `skip` does."""
        return await self._awaited(lambda: self.skip(reason, by=by))

    async def aresume(
        self,
        input: object = None,
        at: str | None = None,
        *,
        by: str | None = None,
        reason: str | None = None,
    ) -> Self:
        """Resume, as `resume` does."""
        return await self._awaited(lambda: self.resume(input, at, by=by, reason=reason))

    async def aretry(self, from_step: str | None = None, *, by: str | None = None, reason: str | None = None) -> Self:
        """Retry, as `retry` does."""
        return await self._awaited(lambda: self.retry(from_step, by=by, reason=reason))

    async def _awaited(self, call: Callable[[], Self]) -> Self:
        return await awaited(call, None if self._place is None else self._place.session)

    def _inside(self, what: str) -> StepContext:
        if self._context is None:
            raise OutsideStep(what)
        return self._context

    def _verb(self, verb: str, do: verbs.Act, *, by: str | None, reason: str | None) -> Self:
        if self._context is not None:
            raise InsideStep(verb)
        self._act(verb, do, by=_said(by), reason=_said(reason))
        return self


def _said(text: str | None) -> str | None:
    """Make what a caller says fit for a column."""
    return None if text is None else readable(text)


def _check_then(then: str, *, inside: bool) -> None:
    if then not in ("again", "next"):
        raise InvalidInput(f"then={then!r} must be 'again' or 'next'")
    if then == "next" and not inside:
        raise InvalidInput("then='next' is for a step that pauses itself; from outside, skip() passes a step over")

"""One step, from claim to settle: claim, run, decide, plan, settle."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
from sqlalchemy.exc import DBAPIError
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from durable import heroes, payloads, policies, registry, reports, verdicts
from durable.context import FlowControl, StepContext
from durable.coroutines import finish
from durable.errors import ClaimLost, SessionAborted, StepNotDefined
from durable.failures import describe, describe_both
from durable.policies import Decision, ExceptionPolicy, Handler, Rule
from durable.runtime import Runtime, driver_connection
from durable.states import WorkflowState
from durable.steps import Step
from durable.store import claims
from durable.store.rows import Claim
from durable.verdicts import Plan, Verdict
from durable.workflow import Workflow

log = logging.getLogger("durable.executor")


def perform(
    runtime: Runtime, workflow_class: type[Workflow[Any]], execution_id: UUID, *, early: bool = False
) -> WorkflowState | None:
    """Run one execution if it can be claimed, and return the workflow's state after it.

    None means that it was not ours to run, or not ours any more when it ended. `early` ignores its due time.
    """
    claim = _claim(runtime, workflow_class, execution_id, early=early)
    if claim is None:
        log.debug("execution %s is not to be claimed", execution_id)
        return None
    of_row = registry.resolve(claim.name, claim.version) or workflow_class
    performance = Performance(runtime, claim, of_row)
    try:
        return performance.run()
    except ClaimLost as lost:
        performance.context.logger.warning("%s: it writes nothing more", lost)
        return None
    finally:
        performance.context.close()


def _claim(runtime: Runtime, workflow_class: type[Workflow[Any]], execution_id: UUID, *, early: bool) -> Claim | None:
    def take(presence: str) -> Claim | None:
        with runtime.hot() as conn:
            return claims.claim(
                conn,
                runtime.clock,
                execution_id,
                name=workflow_class.options.name,
                worker=runtime.worker,
                lease=runtime.settings.lost_worker_after,
                presence=presence,
                early=early,
            )

    try:
        return take(heroes.presence(workflow_class.hero_classes()))
    except (psycopg.DataError, psycopg.ProgrammingError) as error:
        log.warning("cannot tell whether the hero of execution %s is there: %s", execution_id, error)
        return take(heroes.presence(()))


class Performance:
    """The run of one claimed execution."""

    def __init__(self, runtime: Runtime, claim: Claim, workflow_class: type[Workflow[Any]]) -> None:
        self.claim = claim
        self.runtime = runtime
        self.workflow_class = workflow_class
        self.definition = workflow_class.definition
        self.context = StepContext(
            runtime, claim, may_proceed_without_hero=workflow_class.options.may_proceed_without_hero
        )
        self.workflow = workflow_class._for_step(self.context)

    def run(self) -> WorkflowState:
        """Run the step and settle what it comes to."""
        step = self.definition.find(self.claim.step)
        if step is None:
            return self._settle(self._missing_step())
        if step.removed:
            return self._settle(verdicts.removed())
        try:
            verdict, data = self._guarded(lambda: self._body(step))
        except Exception as error:
            return self._fail(step, error, interrupted=self.context.lost_connection)
        try:
            return self._settle(verdict, data)
        except ClaimLost:
            raise
        except Exception as error:
            return self._fail(step, error, interrupted=_is_transient(error))

    def _fail(self, step: Step, error: Exception, *, interrupted: bool) -> WorkflowState:
        """Settle an exception of the body, or of the settle of a body that went well.

        After a commit whose answer was lost nobody knows whether it happened; if it did, the claim is gone and a second
        settle finds nothing to end.
        """
        self._drop_session()
        if interrupted:
            return self._settle(self._interrupted(error))
        try:
            verdict, data = self._decide(step, error)
            return self._settle(verdict, data)
        except ClaimLost:
            raise
        except Exception as second:
            self._drop_session()
            failure = describe_both(error, "on_exception", second)
            return self._settle(verdicts.raised(failure, Decision("pause")))

    # --- run

    def _body(self, step: Step) -> Verdict:
        self.workflow._open()
        self._check_hero()
        for condition in self.definition.conditions:
            if self._ask(condition.function, condition.attribute):
                return verdicts.canceled(f"cancel_if {condition.name}")
        if self._skips(step):
            return verdicts.skipped("skip_if")
        workflow = self.workflow
        finish(workflow.before_execution())
        result = finish(workflow.around_execution(lambda: self._call(step)))
        if self.context.flow is None:
            finish(workflow.after_execution())
        return verdicts.completed(self._encode(result, f"the result of step {step.name!r}"))

    def _check_hero(self) -> None:
        claim = self.claim
        if claim.hero_type is None or claim.hero_present:
            return
        if claim.hero_present is None:
            self._look_for_hero()
        elif not self.workflow_class.options.may_proceed_without_hero:
            self.context.end(verdicts.hero_gone())

    def _look_for_hero(self) -> None:
        """Load a hero of a class not seen here before; the next claim will tell by itself."""
        hero = self.context.hero()
        if hero is not None:
            self.workflow_class.know_hero(type(hero))

    def _skips(self, step: Step) -> bool:
        if isinstance(step.skip_if, bool):
            return step.skip_if
        if isinstance(step.skip_if, str):
            return self._ask(None, step.skip_if)
        return self._ask(step.skip_if, None)

    def _ask(self, function: Callable[..., object] | None, attribute: str | None) -> bool:
        """Ask a condition: by its attribute where it has one, so that overriding works as everywhere."""
        if attribute is None:
            assert function is not None
            return bool(finish(function(self.workflow)))
        found = getattr(self.workflow, attribute)
        return bool(finish(found())) if callable(found) else bool(found)

    def _call(self, step: Step) -> object:
        if step.attribute is not None:
            return finish(getattr(self.workflow, step.attribute)())
        assert step.function is not None
        return finish(step.function(self.workflow))

    def _guarded(self, run: Callable[[], Verdict]) -> tuple[Verdict, str | None]:
        """Run code of the user's and return what it came to, and `data` if it changed."""
        try:
            verdict = run()
        except FlowControl as flow:
            verdict = flow.verdict
        else:
            swallowed = self.context.flow
            if swallowed is not None:
                self.context.logger.warning(
                    "the step caught its own flow control (%s); it is honoured", swallowed.outcome
                )
                verdict = swallowed
        return verdict, self._changed_data()

    def _changed_data(self) -> str | None:
        text = self._encode(dict(self.workflow.data), "data")
        return None if text == payloads.encode(self.claim.data, what="data") else text

    def _encode(self, value: object, what: str) -> str | None:
        if value is None:
            return None
        return payloads.encode(value, what=what, limit=self.runtime.settings.max_payload)

    # --- decide

    def _missing_step(self) -> Verdict:
        error = StepNotDefined(self.claim.name, self.claim.step, self.definition.names)
        self._report(error, "always", "pause")
        return verdicts.raised(describe(error), Decision("pause"))

    def _decide(self, step: Step, error: Exception) -> tuple[Verdict, str | None]:
        rule = policies.resolve(error, step.policies, self.definition.rules)
        if isinstance(rule.policy, Handler):
            return self._handle(rule.policy, error)
        decision = self._apply(rule.policy, rule, error)
        self._report(error, rule.policy.report, decision.action)
        return verdicts.raised(describe(error), decision), None

    def _apply(self, policy: ExceptionPolicy, rule: Rule, error: Exception) -> Decision:
        decision = policies.decide(policy, rule.cap, error, reattempts=self.claim.reattempts)
        if decision.exhausted:
            self.context.logger.warning(
                "gave up after %s reattempts: %s", self.claim.reattempts, policy.terminal_action
            )
        return decision

    def _handle(self, handler: Handler, error: Exception) -> tuple[Verdict, str | None]:
        workflow = self.workflow = self.workflow_class._for_step(self.context)
        self.context.flow = None
        call = getattr(workflow, handler.name, None) or partial(handler.call, workflow)

        def ask() -> Verdict:
            workflow._open()
            finish(call(error))
            return _UNDECIDED

        try:
            verdict, data = self._guarded(ask)
        except Exception as second:
            self._report(second, "always", "pause")
            self._drop_session()
            return verdicts.raised(describe_both(error, handler.name, second), Decision("pause")), None
        if verdict is _UNDECIDED:
            self._report(error, handler.report, "pause")
            return verdicts.raised(describe(error), Decision("pause")), data
        self._report(error, handler.report, verdict.outcome)
        return verdicts.handled(describe(error), verdict), data

    def _report(self, error: Exception, when: str, action: str) -> None:
        reports.report(self.context, error, when=when, action=action)

    def _interrupted(self, error: Exception) -> Verdict:
        settings = self.runtime.settings
        self.context.logger.warning("the database went away under the step: %s", error)
        return verdicts.interrupted(describe(error), crashes=self.claim.crashes, most=settings.max_crashes)

    # --- settle

    def _settle(self, verdict: Verdict, data: str | None = None) -> WorkflowState:
        plan = verdicts.plan(verdict, self.claim, self._following())
        if self.context.writes:
            return self._settle_with_session(plan, data)
        return self._settle_alone(plan, data)

    def _following(self) -> Step | None:
        known = self.definition.find(self.claim.step) is not None
        return self.definition.after(self.claim.step) if known else None

    def _settle_with_session(self, plan: Plan, data: str | None) -> WorkflowState:
        session = self.context.session
        session.flush()
        conn = driver_connection(session.connection())
        try:
            state = claims.settle(conn, self.runtime.clock, self.claim, plan, data=data)
        except psycopg.errors.InFailedSqlTransaction as error:
            raise SessionAborted from error
        if state is None:
            raise ClaimLost(self.claim.execution_id)
        self.context.commit()
        return state

    def _settle_alone(self, plan: Plan, data: str | None) -> WorkflowState:
        """Settle in one statement; safe to repeat when the database's answer was lost, as the claim fences it."""
        for attempt in _patiently(self.runtime.settings.lost_worker_after):
            with attempt, self.runtime.hot() as conn:
                state = claims.settle(conn, self.runtime.clock, self.claim, plan, data=data)
                if state is None and attempt.retry_state.attempt_number > 1:
                    state = claims.state_of(conn, self.claim.workflow_id)
        if state is None:
            raise ClaimLost(self.claim.execution_id)
        return state

    def _drop_session(self) -> None:
        try:
            self.context.undo()
        except DBAPIError as error:
            self.context.logger.debug("the session's connection is gone: %s", error)


_UNDECIDED = verdicts.paused("its handler did not decide", "again")


_RETRIABLE = ("08", "40001", "40P01", "57P01", "57P02", "57P03", "25006")


def _is_transient(error: BaseException) -> bool:
    """Tell whether the database, not the step, is at fault: a lost connection, a restart, a deadlock."""
    if isinstance(error, DBAPIError):
        return error.connection_invalidated or (error.orig is not None and _is_transient(error.orig))
    if not isinstance(error, psycopg.OperationalError):
        return False
    return error.sqlstate is None or error.sqlstate.startswith(_RETRIABLE)


def _patiently(limit: timedelta) -> Retrying:
    return Retrying(
        retry=retry_if_exception(_is_transient),
        stop=stop_after_delay(limit),
        wait=wait_random_exponential(multiplier=0.05, max=1.0),
        reraise=True,
    )

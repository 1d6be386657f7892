"""The run of one claimed execution: run, decide, plan, settle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event, Lock, Timer
from typing import Any

import psycopg
from sqlalchemy.exc import DBAPIError

from durable import payloads, policies, reports, verdicts
from durable.context import FlowControl, StepContext
from durable.coroutines import finish
from durable.errors import ClaimLost, SessionAborted, StepNotDefined, StepTimeout
from durable.failpoints import failpoint
from durable.failures import describe, describe_both
from durable.guard import Cause, Interrupted, Watch
from durable.patience import is_at_fault, is_transient, not_the_steps, patiently
from durable.policies import Decision, ExceptionPolicy, Handler, Rule
from durable.post import post
from durable.runtime import Runtime, driver_connection
from durable.steps import Step
from durable.store import claims
from durable.store.rows import Claim, Settled
from durable.verdicts import Plan, Verdict
from durable.workflow import Workflow

PATIENCE = 5.0
"""Seconds for which a body that was interrupted may take to end, before its execution is settled without it."""
PAUSE = 1.0
"""Seconds between attempts to settle without the body."""


class Performance:
    """The run of one claimed execution."""

    def __init__(self, runtime: Runtime, claim: Claim, workflow_class: type[Workflow[Any]], watch: Watch) -> None:
        self.claim = claim
        self.runtime = runtime
        self.workflow_class = workflow_class
        self.definition = workflow_class.definition
        self.watch = watch
        self.context = StepContext(
            runtime, claim, may_proceed_without_hero=workflow_class.options.may_proceed_without_hero
        )
        self.workflow = workflow_class._for_step(self.context)
        self._abandoned = False
        self._abandoning = Lock()
        watch.abandon = self.abandon

    def run(self) -> Settled:
        """Run the step and settle what it comes to."""
        step = self.definition.find(self.claim.step)
        if step is None:
            return self._settle(self._missing_step())
        if step.removed:
            return self._settle(verdicts.removed())
        try:
            return self._run(step)
        except Interrupted:
            self._drop_session()
            return self._settle(self._stopped())

    def abandon(self, cause: Cause) -> None:
        """Settle from another thread, in the place of a body that does not come back; its claim is gone then."""
        self._settle_without_body(verdicts.handed_back() if cause is Cause.SHUTDOWN else self._give_up())

    def _settle_without_body(self, verdict: Verdict) -> None:
        """Settle; a body that comes back meanwhile waits for what comes of it."""
        with self._abandoning:
            try:
                settled = self._settle_alone(self._plan(verdict), None)
            except ClaimLost:
                self._abandoned = True
                raise
            self._abandoned = True
        post(self.runtime, [settled.letter])

    def _run(self, step: Step) -> Settled:
        try:
            verdict, data = self._limited(step)
        except Exception as error:
            # An interrupt in the middle of a query closes the connection: that is not the database's doing.
            lost = self.context.lost_connection or is_at_fault(error)
            return self._fail(step, error, interrupted=lost and self.watch.cause is None)
        try:
            return self._settle(verdict, data)
        except ClaimLost:
            raise
        except Exception as error:
            return self._fail(step, error, interrupted=is_transient(error) or is_at_fault(error))

    def _fail(self, step: Step, error: Exception, *, interrupted: bool) -> Settled:
        """Settle an exception of the body, or of the settle of a body that went well.

        After a commit whose answer was lost nobody knows whether it happened; if it did, the claim is gone and a second
        settle finds nothing to end.
        """
        self._drop_session()
        with self._abandoning:
            if self._abandoned:
                raise ClaimLost(self.claim.execution_id)
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

    # --- interrupt

    def _limited(self, step: Step) -> tuple[Verdict, str | None]:
        """Run the body within its time; whatever an interrupted body makes of its interrupt, the interrupt counts."""
        with self._time_limit(step):
            try:
                done = self._guarded(lambda: self._body(step))
            except (Exception, Interrupted) as error:
                self._raise_cause(step, error)
                raise
        if self.watch.cause is Cause.TIMEOUT:
            self._raise_cause(step, None)
        return done

    def _raise_cause(self, step: Step, error: BaseException | None) -> None:
        if self.watch.cause is Cause.TIMEOUT and step.timeout is not None:
            late = StepTimeout(step.name, step.timeout)
            raise late.with_traceback(None if error is None else error.__traceback__) from None
        if self.watch.cause is not None:
            raise Interrupted from error

    @contextmanager
    def _time_limit(self, step: Step) -> Iterator[None]:
        if step.timeout is None:
            yield
            return
        returned = Event()
        timer = Timer(step.timeout.total_seconds(), self._time_out, [returned])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            returned.set()
            timer.cancel()

    def _time_out(self, returned: Event) -> None:
        self.watch.interrupt(Cause.TIMEOUT)
        if returned.wait(PATIENCE):
            return
        self.context.logger.warning("the body does not end, its execution is settled without it")
        verdict = self._give_up()
        while not self._abandoned:
            try:
                self._settle_without_body(verdict)
            except ClaimLost:
                return
            except Exception as error:
                self.context.logger.warning("it cannot be settled yet: %s", error)
                if returned.wait(PAUSE):
                    return

    def _stopped(self) -> Verdict:
        """Return what an interrupt from outside means."""
        if self.watch.cause is Cause.SHUTDOWN:
            return verdicts.handed_back()
        if self.watch.cause is Cause.CANCEL:
            return verdicts.canceled(self.watch.reason)
        raise ClaimLost(self.claim.execution_id)

    def _give_up(self) -> Verdict:
        """Return what a timeout means, without calling code of the user's: a handler cannot be asked."""
        step = self.definition.find(self.claim.step)
        assert step is not None
        assert step.timeout is not None
        error = StepTimeout(step.name, step.timeout)
        try:
            return self._late(step, error)
        except Exception as second:
            self._report(error, "always", "pause")
            failure = describe_both(error, "on_exception", second)
            return verdicts.raised(failure, Decision("pause"), timed_out=True)

    def _late(self, step: Step, error: StepTimeout) -> Verdict:
        rule = policies.resolve(error, step.policies, self.definition.rules)
        if isinstance(rule.policy, Handler):
            self._report(error, rule.policy.report, "pause")
            return verdicts.raised(describe(error), Decision("pause"), timed_out=True)
        decision = self._apply(rule.policy, rule, error)
        self._report(error, rule.policy.report, decision.action)
        return verdicts.raised(describe(error), decision, timed_out=True)

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
        result = finish(workflow.around_execution(lambda: self._call(step)), apart=True)
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
            verdict = self._within_guard(run)
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

    def _within_guard(self, run: Callable[[], Verdict]) -> Verdict:
        """Call the user's code so that it can be interrupted; after a timeout its handler runs without."""
        return run() if self.watch.cause is Cause.TIMEOUT else self.watch.run(run)

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
        return verdicts.raised(describe(error), decision, timed_out=isinstance(error, StepTimeout)), None

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

    def _plan(self, verdict: Verdict) -> Plan:
        return verdicts.plan(verdict, self.claim, self._following())

    def _settle(self, verdict: Verdict, data: str | None = None) -> Settled:
        plan = self._plan(verdict)
        if self.context.writes:
            return self._settle_with_session(plan, data)
        return self._settle_alone(plan, data)

    def _following(self) -> Step | None:
        known = self.definition.find(self.claim.step) is not None
        return self.definition.after(self.claim.step) if known else None

    def _settle_with_session(self, plan: Plan, data: str | None) -> Settled:
        session = self.context.session
        session.flush()
        conn = driver_connection(session.connection())
        try:
            with not_the_steps():
                settled = claims.settle(conn, self.runtime.clock, self.claim, plan, data=data, look=self.runtime.look)
        except psycopg.errors.InFailedSqlTransaction as error:
            raise SessionAborted from error
        if settled is None:
            raise ClaimLost(self.claim.execution_id)
        failpoint("settle.before_commit")
        self.context.commit()
        return settled

    def _settle_alone(self, plan: Plan, data: str | None) -> Settled:
        """Settle in one statement; safe to repeat when the database's answer was lost, as the claim fences it."""
        for attempt in patiently(self.runtime.settings.lost_worker_after):
            with attempt, not_the_steps(), self.runtime.hot() as conn:
                settled = claims.settle(conn, self.runtime.clock, self.claim, plan, data=data, look=self.runtime.look)
                if settled is None and attempt.retry_state.attempt_number > 1:
                    settled = claims.left_by(conn, self.claim)
        if settled is None:
            raise ClaimLost(self.claim.execution_id)
        return settled

    def _drop_session(self) -> None:
        try:
            self.context.undo()
        except DBAPIError as error:
            self.context.logger.debug("the session's connection is gone: %s", error)


_UNDECIDED = verdicts.paused("its handler did not decide", "again")

"""A step's `timeout`: its body is interrupted, what it wrote is undone, and its policy decides."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from threading import Event, Timer, current_thread

import psycopg
import pytest
from dramatiq.asyncio import EventLoopThread, get_event_loop_thread, set_event_loop_thread
from sqlalchemy import text
from tenacity.wait import wait_base

from durable import ExceptionPolicy, StepConfigurationError, Workflow, on_exception, performance, step
from durable.performance import Performance
from durable.testing import perform_next_step, speedrun
from tests.conftest import Subscription
from tests.waiting import until

SHORT = "100ms"
LONG = 30.0
"""Seconds after which a body that nobody interrupts ends by itself."""
STEP_TIMEOUT = "durable.errors.StepTimeout"


def linger(seconds: float = LONG) -> None:
    """Take long, in Python's own code: an interrupt can be raised between any two lines."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.005)


def slow(**options):
    """Make a workflow whose first step writes and then takes longer than it may."""

    class Slow(Workflow[Subscription]):
        @step(timeout=SHORT, **options)
        def act(self):
            self.hero.note = "written too late"
            self.session.flush()
            self.data["seen"] = True
            linger()

        @step
        def follow(self):
            pass

    return Slow


@pytest.mark.parametrize(
    ("action", "state", "next_step"),
    [("pause", "paused", "act"), ("fail", "failed", None), ("skip", "ready", "follow"), ("cancel", "canceled", None)],
)
def test_a_body_that_takes_too_long_is_interrupted_and_its_policy_decides(
    subscription, reload, action, state, next_step
):
    workflow = slow(on_exception=action).create(subscription)

    began = time.monotonic()
    perform_next_step(workflow)

    assert time.monotonic() - began < LONG / 3
    ended = workflow.history[0]
    assert (ended.state, ended.outcome, ended.error_class) == ("failed", "timed_out", STEP_TIMEOUT)
    assert "'act' ran for longer than its timeout of 0:00:00.100000" in ended.error_message
    assert "linger" in ended.error_traceback
    assert (workflow.state, workflow.next_step) == (state, next_step)
    assert reload(subscription).note == ""
    assert workflow.data == {}


def test_a_timeout_pauses_by_default_and_the_reason_names_it(subscription):
    workflow = perform_next_step(slow().create(subscription))

    assert workflow.state == "paused"
    assert workflow.reason.startswith(f"{STEP_TIMEOUT}: step 'act' ran for longer than its timeout")


def test_a_timeout_is_reattempted_until_the_body_is_quick_enough(subscription, reload):
    class Renewal(Workflow[Subscription]):
        @step(timeout=SHORT, on_exception=ExceptionPolicy("reattempt", matching=TimeoutError, max_reattempts=2))
        def act(self):
            self.hero.count += 1
            self.session.flush()
            if self.execution.attempt < 3:
                linger()
            return self.execution.attempt

    workflow = speedrun(Renewal.create(subscription))

    assert [execution.outcome for execution in workflow.history] == ["timed_out", "timed_out", "success"]
    assert [execution.attempt for execution in workflow.history] == [1, 2, 3]
    assert len({execution.idempotency_key for execution in workflow.history}) == 1
    assert workflow.state == "finished"
    assert reload(subscription).count == 1


def test_timeouts_count_as_reattempts_up_to_the_cap(subscription):
    policy = ExceptionPolicy("reattempt", max_reattempts=1, terminal_action="fail")

    workflow = speedrun(slow(on_exception=policy).create(subscription))

    assert workflow.state == "failed"
    assert [execution.outcome for execution in workflow.history] == ["timed_out", "timed_out"]


def test_a_handler_of_timeouterror_decides_and_may_write_and_take_its_time(subscription, reload):
    class Renewal(Workflow[Subscription]):
        @on_exception(TimeoutError)
        def too_slow(self, error):
            linger(0.2)  # longer than the step's own limit, which is not the handler's
            self.hero.note = f"gave up on {error.step} after {error.timeout}"
            self.skip("too slow")

        @step(timeout=SHORT)
        def act(self):
            self.hero.count = 99
            self.session.flush()
            linger()

        @step
        def follow(self):
            pass

    workflow = perform_next_step(Renewal.create(subscription))

    ended = workflow.history[0]
    assert (ended.state, ended.outcome, ended.error_class) == ("failed", "skipped", STEP_TIMEOUT)
    assert (workflow.state, workflow.next_step) == ("ready", "follow")
    hero = reload(subscription)
    assert (hero.note, hero.count) == ("gave up on act after 0:00:00.100000", 0)


def test_a_handler_that_does_not_decide_leaves_the_workflow_paused(subscription):
    class Renewal(Workflow[Subscription]):
        @on_exception(TimeoutError)
        def look(self, error):
            pass

        @step(timeout=SHORT)
        def act(self):
            linger()

    workflow = perform_next_step(Renewal.create(subscription))

    assert (workflow.state, workflow.history[0].error_class) == ("paused", STEP_TIMEOUT)


def test_a_body_that_swallows_its_interrupt_has_timed_out_all_the_same(subscription, reload):
    class Renewal(Workflow[Subscription]):
        @step(timeout=SHORT, on_exception="skip")
        def act(self):
            try:
                linger()
            except:  # noqa: E722  (the point of the test)
                self.hero.note = "written after the interrupt"
            return "as if nothing had happened"

    workflow = perform_next_step(Renewal.create(subscription))

    ended = workflow.history[0]
    assert (ended.outcome, ended.error_class, ended.result) == ("timed_out", STEP_TIMEOUT, None)
    assert reload(subscription).note == ""


def test_a_body_that_makes_another_error_of_its_interrupt_has_timed_out_all_the_same(subscription):
    class Renewal(Workflow[Subscription]):
        @step(timeout=SHORT, on_exception=ExceptionPolicy("skip", matching=TimeoutError))
        def act(self):
            try:
                linger()
            except BaseException as error:
                raise ValueError("wrapped") from error

    workflow = perform_next_step(Renewal.create(subscription))

    assert (workflow.history[0].outcome, workflow.history[0].error_class) == ("timed_out", STEP_TIMEOUT)


def test_flow_control_that_came_after_the_time_was_up_does_not_count(subscription):
    class Renewal(Workflow[Subscription]):
        @step(timeout=SHORT, on_exception="fail")
        def act(self):
            try:
                linger()
            except BaseException:
                self.finish("all is well")

    workflow = perform_next_step(Renewal.create(subscription))

    assert (workflow.state, workflow.history[0].outcome) == ("failed", "timed_out")


def test_a_body_that_ends_in_time_is_never_interrupted_later(subscription):
    class Quick(Workflow[Subscription], unique="none"):
        @step(timeout="50ms")
        def act(self):
            return "in time"

    finished = [speedrun(Quick.create(subscription)) for _ in range(20)]
    linger(0.2)  # all the time limits pass: a stray interrupt would be raised here

    assert {workflow.state for workflow in finished} == {"finished"}
    assert {workflow.history[0].outcome for workflow in finished} == {"success"}


def test_the_time_limit_of_one_step_does_not_reach_into_the_next(subscription):
    class Renewal(Workflow[Subscription]):
        @step(timeout="150ms")
        def quick(self):
            pass

        @step
        def unlimited(self):
            linger(0.4)

    workflow = speedrun(Renewal.create(subscription))

    assert [execution.outcome for execution in workflow.history] == ["success", "success"]


@pytest.fixture
def _event_loop() -> Iterator[None]:
    """The event loop of a worker process, in a thread of its own."""
    thread = EventLoopThread(logging.getLogger("tests"))
    thread.start()
    set_event_loop_thread(thread)
    yield
    set_event_loop_thread(None)
    thread.stop()


@pytest.fixture(params=["on a worker's event loop", "on a loop of its own"])
def _some_loop(request: pytest.FixtureRequest) -> None:
    if request.param == "on a worker's event loop":
        request.getfixturevalue("_event_loop")


@pytest.mark.usefixtures("_some_loop")
def test_an_async_body_is_canceled_where_it_awaits_and_its_clean_up_ends_before_anything_is_settled(
    subscription, reload
):
    seen = []

    class Renewal(Workflow[Subscription]):
        @step(timeout=SHORT, on_exception="skip")
        async def act(self):
            self.hero.note = "written too late"
            try:
                await asyncio.sleep(LONG)
            finally:
                await asyncio.sleep(0.3)
                seen.append(await asyncio.to_thread(lambda: Renewal.get(workflow.id).state))

        @step(timeout="10s")
        async def quick(self):
            await asyncio.sleep(0)
            return "done"

    workflow = Renewal.create(subscription)
    began = time.monotonic()
    speedrun(workflow)

    assert time.monotonic() - began < LONG / 3
    assert [execution.outcome for execution in workflow.history] == ["timed_out", "success"]
    assert workflow.history[1].result == "done"
    assert seen == ["performing"]
    assert reload(subscription).note == ""


@pytest.mark.usefixtures("_some_loop")
@pytest.mark.parametrize("interrupt", [SystemExit, KeyboardInterrupt])
def test_an_interrupt_of_an_async_body_s_own_leaves_the_loop_to_other_steps(subscription, new_subscription, interrupt):
    class Renewal(Workflow[Subscription]):
        @step(timeout="5s")
        async def act(self):
            if self.input == "leave":
                raise interrupt
            return "done"

    with pytest.raises(interrupt):
        perform_next_step(Renewal.create(subscription, "leave"))
    other = perform_next_step(Renewal.create(new_subscription()))

    worker = get_event_loop_thread()
    assert worker is None or worker.loop.is_running()
    assert (other.state, other.history[0].result) == ("finished", "done")


@pytest.mark.usefixtures("_event_loop")
def test_a_loop_that_ends_under_an_async_body_is_the_steps_exception(subscription):
    class Renewal(Workflow[Subscription]):
        @step
        async def act(self):
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda *_: None)  # it would complain that this task is never finished
            loop.stop()
            await asyncio.sleep(LONG)

    workflow = perform_next_step(Renewal.create(subscription))

    assert (workflow.state, workflow.history[0].error_class) == ("paused", "RuntimeError")
    assert "the event loop ended" in workflow.history[0].error_message


@pytest.mark.usefixtures("_some_loop")
def test_an_async_hook_around_an_async_body_ends_with_it_also_when_the_time_is_up(subscription):
    seen = []

    class Renewal(Workflow[Subscription]):
        async def around_execution(self, run):
            try:
                await asyncio.sleep(0)
                return run()
            finally:
                seen.append("hook")

        @step(timeout="10s")
        async def quick(self):
            await asyncio.sleep(0)
            return "done"

        @step(timeout=SHORT, on_exception="skip")
        async def slow(self):
            try:
                await asyncio.sleep(LONG)
            finally:
                seen.append("body")

    workflow = Renewal.create(subscription)
    began = time.monotonic()
    speedrun(workflow)

    assert time.monotonic() - began < LONG / 3
    assert [(e.outcome, e.result) for e in workflow.history] == [("success", "done"), ("timed_out", None)]
    assert seen == ["hook", "body", "hook"]


@pytest.mark.usefixtures("_event_loop")
def test_an_async_hook_around_a_body_that_blocks_keeps_no_other_coroutine_waiting(subscription):
    class Renewal(Workflow[Subscription]):
        async def around_execution(self, run):
            return run()

        @step
        def act(self):
            elsewhere = asyncio.run_coroutine_threadsafe(asyncio.sleep(0, "done"), get_event_loop_thread().loop)
            return elsewhere.result(LONG / 3)

    workflow = perform_next_step(Renewal.create(subscription))

    assert [execution.result for execution in workflow.history] == ["done"]


def test_an_error_before_the_time_is_up_is_that_error(subscription):
    class Renewal(Workflow[Subscription]):
        @step(timeout="10s", on_exception="skip")
        def act(self):
            raise TimeoutError("the gateway's own")

    workflow = perform_next_step(Renewal.create(subscription))

    assert (workflow.history[0].outcome, workflow.history[0].error_class) == ("skipped", "TimeoutError")


def test_the_limit_covers_conditions_and_hooks_as_well(subscription):
    class Renewal(Workflow[Subscription]):
        @step(timeout=SHORT, on_exception="fail", skip_if="asks_for_long")
        def act(self):
            pass

        def asks_for_long(self):
            linger()

    workflow = perform_next_step(Renewal.create(subscription))

    assert (workflow.state, workflow.history[0].outcome) == ("failed", "timed_out")


def test_a_query_that_runs_when_the_time_is_up_ends_with_it_and_the_connection_stays_good(subscription, reload):
    class Renewal(Workflow[Subscription]):
        @step(timeout=SHORT, on_exception="skip")
        def act(self):
            self.hero.note = "written too late"
            self.session.flush()
            self.session.execute(text("SELECT pg_sleep(0.5)"))
            linger()

        @step
        def follow(self):
            self.hero.count = 1

    workflow = speedrun(Renewal.create(subscription))

    assert [execution.outcome for execution in workflow.history] == ["timed_out", "success"]
    hero = reload(subscription)
    assert (hero.note, hero.count) == ("", 1)


@pytest.mark.parametrize(("action", "state"), [("skip", "finished"), ("pause", "paused")])
def test_a_body_that_nothing_interrupts_is_settled_without_it_and_what_it_does_later_counts_nothing(
    subscription, reload, monkeypatch, caplog, action, state
):
    monkeypatch.setattr(performance, "PATIENCE", 0.1)
    deaf_for = 1.0
    seen = []

    class Renewal(Workflow[Subscription]):
        @step(timeout=SHORT, on_exception=action)
        def act(self):
            self.hero.note = "written too late"
            time.sleep(deaf_for)
            seen.append(workflow.refresh().state)

    workflow = Renewal.create(subscription)
    with caplog.at_level(logging.WARNING):
        perform_next_step(workflow)

    ended = workflow.history[0]
    assert (ended.outcome, ended.error_class) == ("timed_out", STEP_TIMEOUT)
    assert ended.finished_at - ended.started_at < timedelta(seconds=deaf_for)
    assert workflow.state == state
    assert reload(subscription).note == ""
    assert "the body does not end, its execution is settled without it" in caplog.text
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1, "one error, one report"


def test_a_deaf_body_s_handler_cannot_be_asked_so_the_workflow_pauses(subscription, monkeypatch, caplog):
    monkeypatch.setattr(performance, "PATIENCE", 0.1)
    asked = []

    class Renewal(Workflow[Subscription]):
        @on_exception(TimeoutError)
        def look(self, error):
            asked.append(error)

        @step(timeout=SHORT)
        def act(self):
            time.sleep(1.0)

    workflow = perform_next_step(Renewal.create(subscription))

    assert (workflow.state, workflow.history[0].outcome) == ("paused", "timed_out")
    assert asked == []
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1, "one error, one report"


@contextmanager
def performed_elsewhere(workflow, end):
    """Perform the next step in another thread, and set the end of its body at last."""
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(perform_next_step, type(workflow).get(workflow.id))
        try:
            yield
        finally:
            end.set()
        done.result(LONG)


def deaf(end, **options):
    """Make a workflow whose body nothing interrupts until the end is set."""

    class Deaf(Workflow[Subscription]):
        @step(timeout=SHORT, **options)
        def act(self):
            end.wait(LONG)

    return Deaf


def fail_in_timers(monkeypatch, times):
    """Let the database be away for a time limit's thread, which is seen by an event, and not for the body's."""
    settle = Performance._settle_alone
    failed = Event()

    def settle_or_fail(self, plan, data):
        nonlocal times
        if isinstance(current_thread(), Timer) and times:
            times -= 1
            failed.set()
            raise psycopg.OperationalError("the database is away")
        return settle(self, plan, data)

    monkeypatch.setattr(performance, "PATIENCE", 0.1)
    monkeypatch.setattr(Performance, "_settle_alone", settle_or_fail)
    return failed


class BrokenWait(wait_base):
    """A wait strategy that raises."""

    def __call__(self, retry_state):
        raise ZeroDivisionError("in the wait strategy")


def test_a_policy_that_raises_about_a_deaf_body_pauses_it(subscription, monkeypatch):
    monkeypatch.setattr(performance, "PATIENCE", 0.1)
    end = Event()
    workflow = deaf(end, on_exception=ExceptionPolicy("reattempt", wait=BrokenWait())).create(subscription)

    with performed_elsewhere(workflow, end):
        until(lambda: workflow.refresh().state == "paused", "the workflow is paused while its body runs")

    ended = workflow.history[0]
    assert (ended.outcome, ended.error_class) == ("timed_out", STEP_TIMEOUT)
    assert "in the wait strategy" in ended.error_message


def test_a_deaf_body_is_given_up_when_the_database_is_back(subscription, monkeypatch):
    monkeypatch.setattr(performance, "PAUSE", 0.05)
    fail_in_timers(monkeypatch, times=3)
    end = Event()
    workflow = deaf(end, on_exception="fail").create(subscription)

    with performed_elsewhere(workflow, end):
        until(lambda: workflow.refresh().state == "failed", "the workflow has failed while its body runs")

    assert [execution.outcome for execution in workflow.history] == ["timed_out"]


def test_a_deaf_body_that_comes_back_before_it_is_given_up_is_settled_as_any_other(subscription, monkeypatch):
    monkeypatch.setattr(performance, "PAUSE", LONG)
    failed = fail_in_timers(monkeypatch, times=1)
    workflow = deaf(failed, on_exception="fail").create(subscription)

    perform_next_step(workflow)

    assert (workflow.state, [e.outcome for e in workflow.history]) == ("failed", ["timed_out"])


@pytest.mark.parametrize("wrong", [0, -1, "soon", "-5s", timedelta(0), timedelta(seconds=-1), float("nan"), True, []])
def test_a_timeout_that_is_no_length_of_time_is_refused_with_the_class(wrong):
    with pytest.raises(StepConfigurationError, match="timeout"):

        class Renewal(Workflow[Subscription]):
            @step(timeout=wrong)
            def act(self):
                pass

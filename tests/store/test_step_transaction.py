"""The step's transaction: its writes, its outcome and what follows are one commit, and nothing is held meanwhile."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from sqlalchemy import create_engine, func, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from durable import Workflow, reaper, step
from durable import runtime as runtimes
from durable.executor import perform
from durable.runtime import Runtime
from durable.testing import perform_next_step, speedrun, travel
from tests.conftest import Subscription


def one_step(body):
    """Make a workflow of one step."""

    class Renewal(Workflow[Subscription]):
        @step
        def act(self):
            return body(self)

    return Renewal


# --- what is kept


def test_what_a_step_writes_is_committed_with_its_outcome(subscription, reload):
    def write(self):
        self.hero.note = "paid"
        self.session.add(Subscription(note="new"))

    workflow = perform_next_step(one_step(write).create(subscription))

    assert workflow.state == "finished"
    assert reload(subscription).note == "paid"


def test_a_step_that_writes_and_raises_leaves_no_write(runtime, subscription, reload):
    def write_and_raise(self):
        self.hero.note = "paid"
        self.data["half"] = True
        self.session.add(Subscription(note="new"))
        self.session.flush()
        raise ValueError("after all")

    workflow = perform_next_step(one_step(write_and_raise).create(subscription))

    assert (workflow.state, workflow.data) == ("paused", {})
    assert reload(subscription).note == ""
    with runtime.engine.connect() as conn:
        assert conn.execute(select(func.count()).select_from(Subscription)).scalar() == 1


def test_a_step_that_writes_and_pauses_leaves_its_write(subscription, reload):
    def write_and_pause(self):
        self.hero.note = "look at me"
        self.pause("please")

    perform_next_step(one_step(write_and_pause).create(subscription))

    assert reload(subscription).note == "look at me"


def test_a_step_whose_claim_was_taken_over_leaves_none_of_its_writes(runtime, subscription, reload, caplog):
    def sleep_past_the_lease(self):
        self.hero.note = "too late"
        self.session.flush()
        travel(minutes=1)
        assert reaper.recover_lost_claims(runtime) == 1

    workflow = one_step(sleep_past_the_lease).create(subscription)

    assert perform(runtime, type(workflow), workflow.current_execution.id) is None
    assert reload(subscription).note == ""
    lost, again = workflow.history
    assert (lost.state, lost.outcome, lost.result) == ("failed", "recovered", None)
    assert (again.state, again.attempt, again.idempotency_key) == ("scheduled", 2, lost.idempotency_key)
    assert "no longer claimed by this worker" in caplog.text


def test_a_step_without_writes_whose_claim_was_taken_over_cannot_end_the_execution(runtime, subscription):
    def sleep_past_the_lease(self):
        travel(minutes=1)
        reaper.recover_lost_claims(runtime)

    workflow = one_step(sleep_past_the_lease).create(subscription)

    assert perform(runtime, type(workflow), workflow.current_execution.id) is None
    assert [e.outcome for e in workflow.history] == ["recovered", None]


def test_a_write_that_the_database_refuses_is_the_steps_exception(subscription, new_subscription, reload):
    taken = new_subscription().id

    def clash(self):
        self.hero.note = "half"
        self.session.add(Subscription(id=taken))

    workflow = perform_next_step(one_step(clash).create(subscription))

    assert workflow.state == "paused"
    assert workflow.history[0].error_class == f"{IntegrityError.__module__}.IntegrityError"
    assert reload(subscription).note == ""


def test_a_step_may_recover_from_a_database_error_by_a_savepoint(subscription, new_subscription, reload):
    taken = new_subscription().id

    def careful(self):
        self.hero.note = "kept"
        try:
            with self.session.begin_nested():
                self.session.add(Subscription(id=taken))
        except IntegrityError:
            return "recovered"

    workflow = perform_next_step(one_step(careful).create(subscription))

    assert workflow.history[0].result == "recovered"
    assert reload(subscription).note == "kept"


def test_a_session_left_in_an_aborted_transaction_is_the_steps_exception(subscription):
    def careless(self):
        try:
            self.session.execute(text("SELECT 1 / 0"))
        except Exception:
            return

    workflow = perform_next_step(one_step(careless).create(subscription))

    assert workflow.state == "paused"
    assert "caught without a rollback" in workflow.history[0].error_message


def test_a_step_cannot_commit_its_session_by_itself(subscription, reload):
    def impatient(self):
        self.hero.note = "early"
        self.session.commit()

    workflow = perform_next_step(one_step(impatient).create(subscription))

    assert workflow.state == "paused"
    assert "use self.session.flush()" in workflow.history[0].error_message
    assert reload(subscription).note == ""


def test_a_result_that_is_not_json_undoes_the_steps_writes(subscription, reload):
    def strange(self):
        self.hero.note = "half"
        return {"when": object()}

    workflow = perform_next_step(one_step(strange).create(subscription))

    assert workflow.state == "paused"
    assert "the result of step 'act' has a object at $.when" in workflow.history[0].error_message
    assert reload(subscription).note == ""


@pytest.mark.parametrize("bad", ["a\x00b", "\ud800", float("nan"), {1: 2}, {"x": {1}}, "x" * 1_100_000])
def test_a_result_or_data_that_cannot_be_kept_is_the_steps_exception(subscription, bad):
    returned = perform_next_step(one_step(lambda self: bad).create(subscription))
    assert (returned.state, returned.history[0].error_class) == ("paused", "durable.errors.NotJson")
    returned.cancel()

    def keep(self):
        self.data["bad"] = bad

    kept = perform_next_step(one_step(keep).create(subscription))
    assert (kept.state, kept.data, kept.history[0].error_class) == ("paused", {}, "durable.errors.NotJson")


def test_a_workflow_created_in_a_step_commits_with_it(subscription, new_subscription):
    class Child(Workflow[Subscription]):
        @step
        def run(self):
            pass

    other = new_subscription()
    fails = one_step(lambda self: Child.create(other, session=self.session) and 1 / 0)
    perform_next_step(fails.create(subscription)).cancel()
    assert Child.count() == 0

    works = one_step(lambda self: bool(Child.create(other, session=self.session)))
    perform_next_step(works.create(subscription))
    assert Child.count() == 1


def test_the_end_of_a_step_is_when_it_settles_not_when_its_transaction_began(subscription):
    class Slow(Workflow[Subscription]):
        @step
        def query_and_wait(self):
            self.session.execute(text("SELECT 1"))
            with runtimes.current().engine.connect() as other:
                other.execute(text("SELECT pg_sleep(0.3)"))

        @step(wait="5s")
        def follow(self):
            pass

    first, second = perform_next_step(Slow.create(subscription)).history

    assert (first.finished_at - first.started_at).total_seconds() >= 0.3
    assert (second.scheduled_for - first.finished_at).total_seconds() == 5


# --- what is held


def open_transactions(runtime):
    """Return the sessions of this database that hold a transaction, but for the one that asks."""
    with runtime.engine.connect() as conn:
        return conn.execute(
            text(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND pid <> pg_backend_pid() AND xact_start IS NOT NULL AND state <> 'active'"
            )
        ).scalar()


def test_a_body_runs_with_no_transaction_open_unless_it_queries(runtime, subscription):
    seen = {}

    class Watch(Workflow[Subscription]):
        @step
        def idle(self):
            seen["idle"] = open_transactions(runtime)

        @step(skip_if=lambda self: self.hero.closed)
        def reads_its_hero(self):
            assert self.hero.note == ""
            seen["hero"] = open_transactions(runtime)

        @step
        def reads_results(self):
            assert set(self.results) == {"idle", "reads_its_hero"}
            seen["results"] = open_transactions(runtime)

        @step
        def queries(self):
            self.session.scalar(select(Subscription.note))
            seen["query"] = open_transactions(runtime)

    assert speedrun(Watch.create(subscription)).state == "finished"
    assert seen == {"idle": 0, "hero": 0, "results": 0, "query": 1}


def test_a_whole_step_that_does_nothing_is_two_commits_and_two_statements(runtime, subscription, counted):
    workflow = one_step(lambda self: None).create(subscription)
    execution_id = workflow.current_execution.id

    commits, statements = counted(lambda: perform(runtime, type(workflow), execution_id))

    assert workflow.refresh().state == "finished"
    assert (commits, statements) == (2, 2)


def test_a_step_that_writes_its_hero_stays_within_three_commits_and_eight_statements(runtime, subscription, counted):
    def write(self):
        self.hero.note = "x"

    workflow = one_step(write).create(subscription)
    execution_id = workflow.current_execution.id

    commits, statements = counted(lambda: perform(runtime, type(workflow), execution_id))

    assert workflow.refresh().state == "finished"
    assert commits <= 3
    assert statements <= 9


# --- a database that goes away


def test_a_connection_lost_under_the_body_runs_the_step_again(runtime, subscription, reload):
    attempts = []

    def lose_the_connection(self):
        attempts.append(self.execution.idempotency_key)
        self.hero.note = "x"
        self.session.flush()
        if len(attempts) == 1:
            pid = self.session.scalar(text("SELECT pg_backend_pid()"))
            with runtime.engine.connect() as other:
                other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})

    workflow = perform_next_step(one_step(lose_the_connection).create(subscription))
    assert (workflow.state, reload(subscription).note) == ("ready", "")
    perform_next_step(workflow)

    assert [(e.state, e.outcome) for e in workflow.history] == [("failed", "interrupted"), ("completed", "success")]
    assert len(set(attempts)) == 1
    assert reload(subscription).note == "x"


def test_a_query_that_finds_its_connection_gone_runs_the_step_again(runtime, subscription):
    def lose_the_connection(self):
        if self.execution.attempt == 1:
            pid = self.session.scalar(text("SELECT pg_backend_pid()"))
            with runtime.engine.connect() as other:
                other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
        return self.session.scalar(text("SELECT 7"))

    workflow = speedrun(one_step(lose_the_connection).create(subscription))

    assert [(e.outcome, e.result) for e in workflow.history] == [("interrupted", None), ("success", 7)]


@pytest.fixture
def unreachable(runtime):
    """Make the database refuse new connections for a while, and close those that are idle."""
    url = runtime.engine.url
    elsewhere = create_engine(url.set(database="postgres"), isolation_level="AUTOCOMMIT")

    def allow(allowed):
        with elsewhere.connect() as conn:
            conn.execute(text(f'ALTER DATABASE "{url.database}" ALLOW_CONNECTIONS {allowed}'))

    @contextmanager
    def refusing():
        runtime.engine.dispose()
        allow("false")
        try:
            yield
        finally:
            allow("true")

    yield refusing
    elsewhere.dispose()


@pytest.mark.parametrize("wraps", [False, True], ids=["as it is", "as the cause of another error"])
def test_a_database_that_cannot_be_reached_when_the_body_first_asks_runs_the_step_again(
    subscription, unreachable, wraps
):
    def ask(self):
        if self.execution.attempt > 1:
            return self.session.scalar(text("SELECT 7"))
        with unreachable():
            try:
                return self.session.scalar(text("SELECT 7"))
            except DBAPIError as error:
                raise (ValueError("no answer") if wraps else error) from error

    workflow = speedrun(one_step(ask).create(subscription))

    assert [(e.outcome, e.result) for e in workflow.history] == [("interrupted", None), ("success", 7)]


def test_a_deadlock_of_the_body_runs_the_step_again(runtime, subscription, new_subscription):
    other = new_subscription()

    def lock_both(self):
        lock = text("SELECT FROM subscriptions WHERE id = :id FOR UPDATE")
        self.session.execute(lock, {"id": subscription.id})
        if self.execution.attempt > 1:
            return
        with ThreadPoolExecutor(1) as thread, runtime.engine.connect() as rival:
            rival.execute(lock, {"id": other.id})
            waits = thread.submit(rival.execute, lock, {"id": subscription.id})
            self.session.execute(text("SET LOCAL deadlock_timeout = '10ms'"))
            try:
                self.session.execute(lock, {"id": other.id})
            finally:
                self.session.rollback()
                waits.result(30)
                rival.rollback()

    workflow = speedrun(one_step(lock_both).create(subscription))

    assert [e.outcome for e in workflow.history] == ["interrupted", "success"]


def test_a_read_only_database_of_a_failover_runs_the_step_again_on_another_connection(runtime, subscription):
    seen = []

    def write(self):
        if self.execution.attempt == 1:
            self.session.execute(text("SET TRANSACTION READ ONLY"))
        seen.append(self.session.scalar(text("SELECT pg_backend_pid()")))
        self.session.execute(text("UPDATE subscriptions SET count = count + 1"))

    workflow = speedrun(one_step(write).create(subscription))

    assert [e.outcome for e in workflow.history] == ["interrupted", "success"]
    assert len(set(seen)) == 2


def test_a_database_of_the_steps_own_that_does_not_answer_is_for_its_policy(subscription):
    def ask_another_database(self):
        assert self.session.scalar(text("SELECT 1")) == 1
        create_engine("postgresql+psycopg://nobody@127.0.0.1:1/none").connect()

    workflow = perform_next_step(one_step(ask_another_database).create(subscription))

    assert (workflow.state, workflow.history[0].outcome) == ("paused", "paused")
    assert workflow.history[0].error_class == "sqlalchemy.exc.OperationalError"


def test_a_step_that_loses_its_connection_each_time_pauses(runtime, subscription):
    def always(self):
        pid = self.session.scalar(text("SELECT pg_backend_pid()"))
        with runtime.engine.connect() as other:
            other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
        self.session.scalar(text("SELECT 7"))

    workflow = speedrun(one_step(always).create(subscription))

    assert [e.outcome for e in workflow.history] == ["interrupted", "interrupted", "paused"]


@pytest.fixture
def using(runtime):
    """Run the steps on an engine that the test makes."""
    made = []

    def use(*, options="", session_factory=None, **arguments):
        url = runtime.engine.url.update_query_dict({"options": options} if options else {})
        made.append(create_engine(url, **arguments))
        other = Runtime(runtime.settings, engine=made[-1], session_factory=session_factory)
        other.clock = runtime.clock
        return runtimes.use(other)

    yield use
    for engine in made:
        engine.dispose()


def test_an_exception_after_the_heros_connection_was_closed_by_its_pool_is_for_the_policy(using, subscription):
    class Renewal(Workflow[Subscription]):
        @step(on_exception="cancel")
        def act(self):
            assert self.hero.note == ""
            raise ValueError("of the body's own")

    using(poolclass=NullPool)
    workflow = perform_next_step(Renewal.create(subscription))

    assert (workflow.state, [e.outcome for e in workflow.history]) == ("canceled", ["canceled"])


def test_an_exception_after_the_body_gave_up_its_transaction_is_for_the_policy(using, subscription):
    def roll_back_and_raise(self):
        self.session.execute(text("SELECT 1"))
        self.session.rollback()
        self.session.add(Subscription(note="new"))  # begins a transaction, without a connection as yet
        raise ValueError("of the body's own")

    using(poolclass=NullPool)
    workflow = perform_next_step(one_step(roll_back_and_raise).create(subscription))

    assert [e.outcome for e in workflow.history] == ["paused"]


def test_a_connection_lost_in_the_transaction_runs_the_step_again_whatever_the_body_makes_of_it(runtime, subscription):
    def make_something_of_it(self):
        if self.execution.attempt > 1:
            return
        pid = self.session.scalar(text("SELECT pg_backend_pid()"))
        with runtime.engine.connect() as other:
            other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
        try:
            self.session.scalar(text("SELECT 7"))
        except DBAPIError:
            raise ValueError("no answer") from None

    workflow = speedrun(one_step(make_something_of_it).create(subscription))

    assert [e.outcome for e in workflow.history] == ["interrupted", "success"]


def test_a_factory_may_give_the_same_session_again(runtime, using, subscription, reload):
    class Renewal(Workflow[Subscription]):
        @step
        def first(self):
            self.hero.count += 1

        @step
        def second(self):
            self.hero.count += 1

    sessions = scoped_session(sessionmaker(runtime.engine))
    using(session_factory=sessions)
    workflow = speedrun(Renewal.create(subscription))

    assert (workflow.state, workflow.reason) == ("finished", None)
    assert reload(subscription).count == 2
    sessions().commit()  # nobody refuses it any more
    sessions.remove()


LOCK_WORKFLOW = text("SELECT FROM durable.workflows WHERE id = :id FOR UPDATE")
LET_GO_SOON = text("SET LOCAL idle_in_transaction_session_timeout = '400ms'")


@pytest.fixture
def rival(runtime):
    """Lock a workflow's row for so long that others run out of patience, and let the server end it."""
    engine = create_engine(runtime.engine.url, poolclass=NullPool)
    held = []

    def lock(workflow_id):
        held.append(engine.connect())
        held[-1].execute(LET_GO_SOON)
        held[-1].execute(LOCK_WORKFLOW, {"id": workflow_id})

    yield lock
    for conn in held:
        conn.invalidate()
        conn.close()


@pytest.mark.parametrize("limit", ["lock_timeout", "statement_timeout"])
def test_a_settle_that_cannot_have_the_row_in_time_is_tried_again_and_the_body_is_not(
    using, rival, subscription, limit
):
    ran = []

    def take_the_row_away(self):
        ran.append(self.execution.attempt)
        rival(self.id)
        return "done"

    using(options=f"-c {limit}=100ms")
    workflow = perform_next_step(one_step(take_the_row_away).create(subscription))

    assert (workflow.state, [e.result for e in workflow.history], ran) == ("finished", ["done"], [1])


def test_a_settle_with_writes_that_cannot_have_the_row_in_time_is_not_for_the_policy(rival, subscription, reload):
    class Renewal(Workflow[Subscription]):
        @step(on_exception="fail")
        def act(self):
            self.hero.count += 1
            if self.execution.attempt == 1:
                self.session.execute(text("SET LOCAL lock_timeout = '100ms'"))
                rival(self.id)

    workflow = speedrun(Renewal.create(subscription))

    assert (workflow.state, [e.outcome for e in workflow.history]) == ("finished", ["interrupted", "success"])
    assert reload(subscription).count == 1


def test_a_lock_that_the_body_itself_cannot_have_in_time_is_for_its_policy(rival, subscription):
    class Renewal(Workflow[Subscription]):
        @step(on_exception="fail")
        def act(self):
            self.session.execute(text("SET LOCAL lock_timeout = '100ms'"))
            rival(self.id)
            self.session.execute(LOCK_WORKFLOW, {"id": self.id})

    workflow = perform_next_step(Renewal.create(subscription))

    assert (workflow.state, [e.outcome for e in workflow.history]) == ("failed", ["failed"])


def test_a_commit_whose_answer_is_lost_is_not_repeated(runtime, subscription, monkeypatch):
    """The server committed, the connection died before it could say so."""
    from durable.context import StepContext

    committed = StepContext.commit

    def commit_then_lose(self):
        pid = self.session.scalar(text("SELECT pg_backend_pid()"))
        committed(self)
        if self.claim.step == "act" and not lost:
            lost.append(pid)
            raise_lost_connection()

    lost = []

    def raise_lost_connection():
        import psycopg
        from sqlalchemy.exc import OperationalError

        raise OperationalError("COMMIT", {}, psycopg.OperationalError("server closed the connection"))

    def count_up(self):
        self.session.execute(text("UPDATE subscriptions SET count = count + 1"))

    workflow = one_step(count_up).create(subscription)
    monkeypatch.setattr(StepContext, "commit", commit_then_lose)
    perform(runtime, type(workflow), workflow.current_execution.id)

    assert workflow.refresh().state == "finished"
    assert [e.outcome for e in workflow.history] == ["success"]
    with Session(runtime.engine) as session:
        assert session.get(Subscription, subscription.id).count == 1

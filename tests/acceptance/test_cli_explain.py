"""`durable explain`: why a workflow is not moving."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from sqlalchemy import text

from durable import Workflow, registry, step
from durable.testing import perform_next_step, speedrun, travel
from tests.acceptance.test_cli import printed_json, run
from tests.conftest import Subscription
from tests.scenes import BRING_TO, claim


class Voyage(Workflow[Subscription], queue="seas", unique="none"):
    @step
    def embark(self):
        if self.hero.closed:
            raise LookupError("no ship\nat all")

    @step(wait="3d")
    def sail(self):
        self.fail("a storm")

    @step
    def land(self):
        pass


@pytest.fixture
def worker(runtime):
    """Register a worker that could take a voyage, unless told otherwise."""

    def register(id="a test", *, seen=timedelta(), queues=("seas",), classes=(Voyage.options.name,)):
        with runtime.engine.begin() as conn:
            conn.execute(
                text(
                    "INSERT INTO durable.workers (id, host, pid, lock_key, queues, classes, started_at, seen_at) "
                    f"VALUES (:id, 'ship', 7, 1, :queues, :classes, {runtime.clock.sql}, "
                    f"{runtime.clock.sql} - CAST(:seen AS interval))"
                ),
                {"id": id, "seen": seen, "queues": list(queues), "classes": list(classes)},
            )

    yield register
    with runtime.engine.begin() as conn:
        conn.execute(text("DELETE FROM durable.workers"))


@pytest.fixture
def sent(runtime):
    """Have every message sent so often, and looked at again in a minute."""

    def send(times):
        with runtime.engine.begin() as conn:
            values = {"times": times}
            conn.execute(
                text(f"UPDATE durable.outbox SET sends = :times, due_at = {runtime.clock.sql} + interval '1 min'"),
                values,
            )

    return send


def explained(workflow):
    """Return the sentences and the advice, each as one text."""
    document = printed_json(run("explain", workflow.id, "--json"))
    assert document["id"] == str(workflow.id)
    assert document["why"]
    return " ".join(document["why"]), " ".join(document["do"])


# --- ready


def test_a_step_that_is_not_due_is_waited_for(subscription, worker):
    worker()
    workflow = Voyage.create(subscription, wait="2h30m")

    why, do = explained(workflow)

    assert "its step embark is due in 2h" in why
    assert do == "Nothing: it goes on by itself."


def test_a_step_that_is_not_due_will_find_nobody_if_no_worker_is_alive(subscription, worker):
    worker(seen=timedelta(minutes=1))

    why, do = explained(Voyage.create(subscription, wait="2h"))

    assert "due in 2h" in why
    assert "No worker is alive." in why
    assert do == "`durable worker`"


def test_a_step_is_overdue_because_no_worker_is_alive(subscription, sent):
    workflow = Voyage.create(subscription)
    travel(minutes=5)
    sent(3)

    why, do = explained(workflow)

    assert "its step embark is overdue by 5m" in why
    assert "Its message was sent 3 times by the relay and nobody has taken it." in why
    assert "No worker is alive." in why
    assert do == "`durable worker`"


def test_a_step_is_overdue_because_nobody_serves_its_queue(subscription, worker, sent):
    workflow = Voyage.create(subscription)
    travel(minutes=5)
    sent(1)
    worker(queues=["lakes", "rivers"])

    why, do = explained(workflow)

    assert "sent once by the relay" in why
    assert "No live worker serves the queue seas (served: lakes, rivers)." in why
    assert do == "`durable worker --queue seas`"


def test_a_step_is_overdue_because_nobody_has_its_class(subscription, worker, sent):
    workflow = Voyage.create(subscription)
    travel(minutes=5)
    sent(1)
    worker(classes=["another"])

    why, do = explained(workflow)

    assert f"No live worker has loaded the class {Voyage.options.name}." in why
    assert "DURABLE_MODULES" in do


def test_a_step_is_overdue_because_queue_and_class_are_with_different_workers(subscription, worker, sent):
    workflow = Voyage.create(subscription)
    travel(minutes=5)
    sent(1)
    worker("one", classes=["another"])
    worker("two", queues=["lakes"])

    assert "No live worker both serves the queue seas and has loaded the class" in explained(workflow)[0]


def test_a_step_is_overdue_because_workers_are_busy(runtime, subscription, worker, sent):
    claim(runtime, Voyage.create(subscription))
    workflow = Voyage.create(subscription)
    travel(minutes=5)
    sent(1)
    worker()

    why, do = explained(workflow)

    assert "1 live worker could take it, with 1 execution to perform now; in all queues 1 due message wait" in why
    assert "start more workers" in do


def test_a_step_is_overdue_though_workers_are_idle(subscription, worker, sent):
    workflow = Voyage.create(subscription)
    travel(minutes=5)
    sent(1)
    worker()

    assert explained(workflow)[1] == "`durable doctor`"


def test_a_message_that_was_never_sent_points_at_the_relay(subscription, worker):
    workflow = Voyage.create(subscription)
    travel(minutes=5)
    worker()

    why, do = explained(workflow)

    assert "Its message was not yet sent by the relay." in why
    assert "no relay seems to run" in why
    assert "`durable relay`" in do


def test_a_workflow_whose_message_somebody_deleted_is_told_of(runtime, subscription, worker):
    workflow = Voyage.create(subscription)
    travel(minutes=5)
    worker()
    with runtime.engine.begin() as conn:
        conn.execute(text("DELETE FROM durable.outbox"))

    why, do = explained(workflow)
    workflow.cancel()

    assert "It has no message in the outbox" in why
    assert "`durable reap --once`" in do


def strand(runtime):
    """Leave every workflow without an execution and without a message."""
    with runtime.engine.begin() as conn:
        conn.execute(text("DELETE FROM durable.outbox"))
        conn.execute(text("DELETE FROM durable.executions"))


def test_a_ready_workflow_with_nothing_scheduled_is_paused_by_the_reaper_and_then_resumed(runtime, subscription):
    workflow = Voyage.create(subscription)
    strand(runtime)
    travel(minutes=16)

    why, do = explained(workflow)

    assert "It is ready, but no execution is scheduled" in why
    assert do.index("`durable reap --once`") < do.index(f"`durable resume {workflow.id}`")
    assert run("reap", "--once").exit_code == 0
    assert run("resume", workflow.id).exit_code == 0
    assert workflow.refresh().current_execution.step == "embark"


def test_a_new_workflow_with_nothing_scheduled_is_not_paused_before_it_has_an_age(runtime, subscription):
    workflow = Voyage.create(subscription)
    strand(runtime)
    travel(minutes=5)

    why, do = explained(workflow)
    workflow.cancel()

    assert "15m after its creation, which is in " in why
    assert do.startswith("wait until then, and ")


# --- performing


def test_a_running_step_is_told_with_its_worker(runtime, subscription, worker):
    workflow = Voyage.create(subscription)
    claim(runtime, workflow)
    travel(minutes=3)
    worker(seen=timedelta(seconds=2))

    why, do = explained(workflow)

    assert "Its step embark is performed since 3m (attempt 1) by worker a test." in why
    assert "(ship, process 7) is alive, last seen 2" in why
    assert do.startswith("wait until the step ends")


@pytest.mark.parametrize(
    ("verb", "when"), [("pause", "when the step ends"), ("cancel", "within about a second, by interrupting the step")]
)
def test_a_stop_that_was_asked_for_is_told_with_when_it_is_done(runtime, subscription, worker, verb, when):
    workflow = Voyage.create(subscription)
    claim(runtime, workflow)
    worker()
    getattr(workflow, verb)()

    assert f"A {verb} was asked for; it is done {when}." in explained(workflow)[0]


def test_a_lost_worker_keeps_its_claim_until_the_lease_runs_out(runtime, subscription, worker):
    workflow = Voyage.create(subscription)
    claim(runtime, workflow)
    worker(seen=timedelta(seconds=20))
    worker("another")

    why, do = explained(workflow)

    assert "(ship, process 7) was not seen for 20" in why
    assert "The reaper takes the execution from it within 1" in why
    assert "durable reap" not in do


def test_without_any_worker_nobody_recovers_what_a_lost_one_held(runtime, subscription):
    workflow = Voyage.create(subscription)
    claim(runtime, workflow)
    travel(minutes=1)

    why, do = explained(workflow)

    assert "That worker is lost: its claim ran out 45s ago." in why
    assert "No worker is alive whose reaper could do that." in why
    assert do == "`durable worker`, or `durable reap`"


def test_a_worker_that_is_not_registered_may_still_hold_its_claim(runtime, subscription):
    workflow = Voyage.create(subscription)
    claim(runtime, workflow)

    assert "That worker is not registered; it may keep its claim for another 1" in explained(workflow)[0]


# --- paused, waiting, ended


def test_a_pause_is_told_with_who_why_and_since_when(subscription):
    workflow = Voyage.create(subscription, wait="1h")
    travel(minutes=5)
    workflow.pause("no wind", by="ada")
    travel(minutes=10)

    why, do = explained(workflow)

    assert "It is paused for 10m now: no wind. It was paused by ada." in why
    assert "its step embark runs in 4" in why
    for command in (
        f"`durable resume {workflow.id}`",
        f"`durable skip {workflow.id}`",
        f"`durable cancel {workflow.id}`",
    ):
        assert command in do


def test_a_paused_step_that_is_overdue_runs_at_once_when_it_is_resumed(subscription):
    workflow = Voyage.create(subscription).pause()
    travel(minutes=5)

    assert "When it is resumed, its step embark runs at once: it is overdue." in explained(workflow)[0]


def test_a_step_that_raised_is_told_with_its_error(subscription, session):
    subscription.closed = True
    session.merge(subscription)
    session.commit()
    workflow = perform_next_step(Voyage.create(subscription))
    travel(minutes=7)

    why, do = explained(workflow)

    assert "It is paused for 7m now: LookupError: no ship. Its step embark raised this in attempt 1." in why
    assert f"`durable show {workflow.id} --json` for the traceback" in do


def test_a_pause_at_the_end_has_nothing_to_skip(runtime, subscription):
    workflow = Voyage.create(subscription).pause()
    with runtime.engine.begin() as conn:
        conn.execute(text("UPDATE durable.workflows SET step = NULL"))
        conn.execute(
            text("UPDATE durable.executions SET state = 'completed', outcome = 'paused', finished_at = scheduled_for")
        )

    do = explained(workflow)[1]

    assert f"`durable resume {workflow.id}` to go on" in do
    assert "skip" not in do


def test_a_failed_workflow_tells_why_and_how_to_run_it_again(subscription):
    workflow = speedrun(Voyage.create(subscription))

    why, do = explained(workflow)

    assert "It has ended as failed" in why
    assert "a storm." in why
    assert f"`durable retry {workflow.id}`" in do


def test_a_canceled_workflow_tells_by_whom(subscription):
    workflow = Voyage.create(subscription).cancel("pirates", by="ada")
    travel(days=2)

    assert explained(workflow)[0] == "It has ended as canceled 2d ago: pirates. It was canceled by ada."


@pytest.mark.parametrize("state", list(BRING_TO))
def test_every_state_is_explained_also_when_the_class_is_not_loaded(runtime, subscription, state):
    workflow = Voyage.create(subscription)
    if state == "failed":
        perform_next_step(workflow)
    BRING_TO[state](runtime, workflow)
    name, versions = Voyage.options.name, registry.loaded()[Voyage.options.name]
    registry.forget(name)
    try:
        explained(workflow)
        printed = run("explain", workflow.id, columns=80).stdout
    finally:
        registry.register(versions[1], name, 1)

    assert f"Voyage {workflow.id} {state}" in printed
    assert ("is not loaded here" in printed) == (state == "paused")


def test_commands_that_are_meant_to_be_copied_stay_in_one_line(subscription):
    workflow = Voyage.create(subscription).pause("x" * 200)

    printed = run("explain", workflow.id, columns=60).stdout

    assert f"`durable resume {workflow.id}` to go on with the step embark\n" in printed


def test_an_unknown_id_is_not_found(runtime):
    assert run("explain", uuid4()).exit_code == 3

"""Worker processes begin, work, freeze, die and end."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest
from sqlalchemy.orm import Session

from tests.acceptance.processes.app import Chain, Deadly, Deaf, Hold, Later, Limited
from tests.acceptance.processes.loop_app import Loops
from tests.acceptance.processes.stage import Stage, WorkerCommand
from tests.scenes import claim
from tests.waiting import until

DONE = {"one": 1, "two": 1, "three": 1}


def await_began(stage: Stage, workflow: Any, *, times: int = 1, seconds: float = 60.0) -> int:
    """Wait until a body has begun for the nth time, and return the process that it runs in."""
    query = "SELECT pid FROM journal WHERE workflow_id = :id AND event = 'began' ORDER BY id OFFSET :earlier"
    return int(
        until(
            lambda: stage.ask(query, id=workflow.id, earlier=times - 1),
            f"its body has begun for time {times}",
            seconds=seconds,
        )
    )


def await_end(worker: WorkerCommand, *, seconds: float) -> float:
    """Wait until a command has ended, and return how long that took."""
    began = time.monotonic()
    until(lambda: worker.ended, "the worker has ended", seconds=seconds)
    return time.monotonic() - began


def make_quick(stage: Stage) -> int:
    """Have the only worker see that steps are quick, so that it fetches more than it has threads for.

    Returns how many workflows that took.
    """
    for done in range(8):
        stage.create(Chain)
        stage.await_finished(done + 1)
    return 8


def worker_names(stage: Stage, pid: int) -> list[str]:
    return [name for (name,) in stage.rows("SELECT id FROM durable.workers WHERE pid = :pid", pid=pid)]


def outcomes(workflow: Any) -> list[tuple[str, Any]]:
    return [(one.step, one.outcome) for one in workflow.history]


def test_a_worker_runs_a_workflow_from_its_first_step_to_its_last(stage):
    stage.start_worker()
    workflow = stage.create(Chain)

    stage.await_finished(1)

    assert stage.effects(workflow.id) == DONE
    stage.assert_sound()


# --- frozen


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_worker_that_was_frozen_past_its_lease_writes_nothing_and_goes_on_under_a_new_name(stage, tmp_path):
    go_on = tmp_path / "go on"
    frozen = stage.start_worker(lost_worker_after="2s")
    workflow = stage.create(Hold, input=str(go_on))
    pid = await_began(stage, workflow)
    assert pid == frozen.worker_pid
    (name,) = worker_names(stage, pid)

    frozen.signal_worker(signal.SIGSTOP)
    # The reaper of this one takes a worker that has been silent four times as long for dead.
    successor = stage.start_worker(lost_worker_after="3s")
    assert await_began(stage, workflow, times=2) == successor.worker_pid
    go_on.touch()
    stage.await_finished(1)
    until(lambda: not worker_names(stage, pid), "it is taken for dead")
    frozen.signal_worker(signal.SIGCONT)

    until(lambda: "is no longer claimed by this worker: it writes nothing more" in frozen.told, "it knows its loss")
    until(lambda: "it goes on under a new name" in frozen.told, "it has noticed its death")
    (new_name,) = until(lambda: worker_names(stage, pid), "it has a new name")
    assert new_name != name
    assert outcomes(workflow) == [("hold", "recovered"), ("hold", "success"), ("after", "success")]
    lost, again, _ = workflow.history
    assert (lost.worker, lost.attempt, again.attempt, again.crashes) == (name, 1, 2, 1)
    assert lost.idempotency_key == again.idempotency_key
    assert stage.effects(workflow.id) == {"hold": 1, "after": 1}
    assert_works_alone(stage, frozen, successor, new_name)
    stage.assert_sound()


def assert_works_alone(stage: Stage, worker: WorkerCommand, other: WorkerCommand, name: str) -> None:
    """The process still runs steps, as its only name."""
    other.end()
    stage.create(Chain)
    stage.await_finished(2)
    assert not worker.ended
    assert stage.rows("SELECT DISTINCT worker FROM durable.executions WHERE step = 'two'") == [(name,)]


@pytest.mark.slow
def test_a_step_longer_than_the_lease_of_a_live_worker_is_not_taken_over(stage):
    workers = [stage.start_worker(lost_worker_after="2s") for _ in range(2)]
    workflow = stage.create(Hold, input=5)
    pid = await_began(stage, workflow)
    leases = set()

    def finished() -> bool:
        leases.add(
            stage.ask("SELECT lease_until FROM durable.executions WHERE state = 'in_progress' AND step = 'hold'")
        )
        return stage.count("finished") == 1

    until(finished, "it is finished")

    assert outcomes(workflow) == [("hold", "success"), ("after", "success")]
    assert stage.rows("SELECT event, pid FROM journal ORDER BY id") == [("began", pid), ("ended", pid)]
    assert len(leases - {None}) >= 3, "its lease was extended again and again"
    assert stage.effects(workflow.id) == {"hold": 1, "after": 1}
    assert not any("was lost in step" in worker.told for worker in workers)
    stage.assert_sound()


# --- killed by its own step


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_step_that_kills_its_process_each_time_is_paused_and_the_other_work_goes_on(stage):
    command = stage.run_command(
        "durable.cli", "worker", "--processes", "1", "--threads", "4", lost_worker_after="3s", max_crashes="3"
    )
    deadly = stage.create(Deadly)
    chains = [stage.create(Chain) for _ in range(10)]

    until(lambda: deadly.refresh().state == "paused", "it is paused", seconds=180)
    stage.await_finished(len(chains))
    chains.append(stage.create(Chain))
    stage.await_finished(len(chains))

    assert deadly.reason == "its step ended its worker 3 times in a row"
    assert outcomes(deadly) == [("die", "recovered"), ("die", "recovered"), ("die", "paused")]
    assert [one.crashes for one in deadly.history] == [0, 1, 2]
    assert len({one.worker for one in deadly.history}) == 3
    assert [stage.effects(chain.id) for chain in chains] == [DONE] * len(chains)
    assert not command.ended
    stage.assert_sound()


# --- beside others


@pytest.mark.slow
def test_steps_do_not_wait_for_a_busy_worker_while_another_has_threads_to_spare(stage, tmp_path):
    go_on = tmp_path / "go on"
    workers = [stage.start_worker(threads=4) for _ in range(2)]

    Hold.create_many(stage.subjects(8), str(go_on))
    until(lambda: stage.began() == 8, "all of them run", seconds=20)  # what waits in a worker, waits for half a minute

    at_work = stage.rows("SELECT pid, count(*) FROM journal GROUP BY pid")
    assert dict(at_work) == {worker.worker_pid: 4 for worker in workers}
    go_on.touch()
    stage.await_finished(8)
    stage.assert_sound()


# --- told to stop


def test_a_step_that_ends_within_the_grace_is_recorded_by_the_worker_that_was_told_to_stop(stage):
    worker = stage.start_worker(threads=1)
    done = make_quick(stage)
    workflow = stage.create(Hold, input=3)
    pid = await_began(stage, workflow)
    waiting = stage.create(Chain)
    until(lambda: stage.redis.scard(ack_set(stage)) == 2, "the worker has fetched the next message too")

    worker.terminate()
    await_end(worker, seconds=20)

    assert worker.process.returncode == 0
    assert outcomes(workflow) == [("hold", "success"), ("after", None)]
    assert stage.rows("SELECT event, pid FROM journal ORDER BY id") == [("began", pid), ("ended", pid)]
    assert stage.rows("SELECT id FROM durable.workers") == []
    assert waiting.history[0].state == "scheduled"

    began = time.monotonic()
    stage.start_worker()
    stage.await_finished(done + 2)
    assert time.monotonic() - began < 20, "the messages were in the queue, nobody had to miss them first"
    assert stage.effects(workflow.id) == {"hold": 1, "after": 1}
    stage.assert_sound()


def test_a_step_that_does_not_end_within_the_grace_is_given_back_as_if_it_had_not_begun(stage, tmp_path):
    go_on = tmp_path / "go on"
    worker = stage.start_worker(threads=1, shutdown_grace="1s")
    workflow = stage.create(Hold, input=str(go_on))
    await_began(stage, workflow)
    other = stage.start_worker(threads=2)
    waiting = [stage.create(Chain) for _ in range(3)]

    worker.terminate()
    assert await_began(stage, workflow, times=2, seconds=20) == other.worker_pid
    go_on.touch()
    stage.await_finished(1 + len(waiting), seconds=20)

    await_end(worker, seconds=20)
    assert worker.process.returncode == 0
    assert_given_back(workflow)
    assert outcomes(workflow)[1:] == [("hold", "success"), ("after", "success")]
    assert stage.effects(workflow.id) == {"hold": 1, "after": 1}
    assert [stage.effects(chain.id) for chain in waiting] == [DONE] * len(waiting)
    stage.assert_sound()


def test_a_worker_ends_in_spite_of_a_step_that_nothing_interrupts_and_gives_back_what_it_had_fetched(stage):
    worker = stage.start_worker(threads=1, shutdown_grace="1s")
    done = make_quick(stage)
    workflow = stage.create(Deaf, input=60)
    await_began(stage, workflow)
    waiting = stage.create(Chain)
    until(lambda: stage.redis.scard(ack_set(stage)) == 2, "the worker has fetched the next message too")

    worker.terminate()
    assert await_end(worker, seconds=30) < 15

    assert worker.process.returncode == 0
    assert stage.rows("SELECT id FROM durable.workers") == []
    assert_given_back(workflow)
    other = stage.start_worker(threads=2)
    assert await_began(stage, workflow, times=2, seconds=20) == other.worker_pid
    stage.await_finished(done + 1, seconds=20)
    assert stage.effects(waiting.id) == DONE


def test_a_worker_that_ends_does_not_take_along_the_message_of_what_it_gives_back(stage):
    worker = stage.start_worker(threads=4, shutdown_grace="1s")  # three threads are idle and ask for messages
    workflow = stage.create(Deaf, input=60)
    await_began(stage, workflow)

    worker.terminate()
    await_end(worker, seconds=30)

    assert_given_back(workflow)
    other = stage.start_worker()
    assert await_began(stage, workflow, times=2, seconds=20) == other.worker_pid


def test_messages_do_not_wait_with_a_worker_that_was_told_to_stop(stage, tmp_path):
    go_on = tmp_path / "go on"
    worker = stage.start_worker(threads=1)
    done = make_quick(stage)
    workflow = stage.create(Hold, input=str(go_on))
    await_began(stage, workflow)
    chains = [stage.create(Chain)]
    until(lambda: stage.redis.scard(ack_set(stage)) == 2, "the worker has fetched the next message too")
    stage.start_worker()

    worker.terminate()
    until(lambda: "Shutting down" in worker.told, "the worker knows")
    chains += [stage.create(Chain) for _ in range(10)]
    stage.await_finished(done + len(chains), seconds=10)

    assert not worker.ended
    assert workflow.refresh().state == "performing"
    go_on.touch()
    stage.await_finished(done + 1 + len(chains))
    assert outcomes(workflow) == [("hold", "success"), ("after", "success")]
    assert [stage.effects(chain.id) for chain in chains] == [DONE] * len(chains)
    stage.assert_sound()


def test_a_worker_ends_though_a_claim_of_its_own_waits_for_a_row_that_somebody_has_locked(stage):
    workflow = stage.create(Chain)
    with Session(stage.engine) as caller:
        Chain.get(workflow.id, session=caller).pause()
        # Postgres may grant the claim when nobody is left to hear of it; its lease is short here.
        worker = stage.start_worker(threads=1, shutdown_grace="1s", lost_worker_after="2s")
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%claim%'"
        until(lambda: stage.ask(waiting), "its claim waits")

        worker.terminate()
        assert await_end(worker, seconds=30) < 15

        assert worker.process.returncode == 0
        assert stage.rows("SELECT id FROM durable.workers") == []
        assert stage.redis.llen("dramatiq:default") == 1, "its message is there for another worker"
        caller.rollback()
    stage.start_worker()
    stage.await_finished(1)
    assert stage.effects(workflow.id) == DONE


def assert_given_back(workflow: Any) -> None:
    """The first execution was given back, and the second is the same attempt."""
    first, second = workflow.history[:2]
    assert (first.state, first.outcome, first.error_class) == ("canceled", "handed_back", None)
    assert second.step == first.step
    assert (second.attempt, second.reattempts, second.crashes) == (first.attempt, 0, 0) == (1, 0, 0)
    assert second.idempotency_key == first.idempotency_key


def ack_set(stage: Stage) -> bytes:
    """Return the key of what the only worker has fetched."""
    return next(iter(stage.redis.scan_iter("dramatiq:__acks__.*.default")), b"none yet")


# --- interrupted


def test_a_step_past_its_timeout_is_interrupted_and_undone_and_async_steps_share_the_worker_s_event_loop(stage):
    stage.start_worker(modules="tests.acceptance.processes.loop_app")
    workflow = stage.create(Limited)
    loops = [stage.create(Loops) for _ in range(3)]

    stage.await_finished(4)

    late, patient = workflow.history
    assert (late.state, late.outcome, late.error_class) == ("failed", "timed_out", "durable.errors.StepTimeout")
    assert (patient.outcome, patient.result) == ("success", "done")
    assert stage.effects(workflow.id) == {}
    assert [one.outcome for one in loops[0].history] == ["success", "timed_out"]
    seen = {one.result for loop in loops for one in loop.history[:1]}
    assert len(seen) == 1, "one loop, in one thread, for all of them"
    assert next(iter(seen)).startswith("EventLoopThread")
    assert stage.effects(loops[0].id) == {}
    stage.assert_sound()


def test_a_workflow_that_is_canceled_while_its_step_runs_has_it_interrupted_and_undone(stage):
    worker = stage.start_worker()
    pid = worker.worker_pid
    workflow = stage.create(Hold, input=600)
    await_began(stage, workflow)

    workflow.cancel("why not")
    until(lambda: workflow.refresh().state == "canceled", "it is canceled", seconds=10)

    assert workflow.reason == "why not"
    assert outcomes(workflow) == [("hold", "canceled")]
    assert workflow.history[0].state == "canceled"
    assert stage.effects(workflow.id) == {}
    assert stage.rows("SELECT event FROM journal") == [("began",)]
    stage.create(Chain)
    stage.await_finished(1)
    assert worker.worker_pid == pid
    stage.assert_sound()


# --- robbed of its servers


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_pulse_relay_and_reaper_come_back_after_both_servers_were_away(stage):
    worker = stage.start_worker(lost_worker_after="3s")
    pid = worker.worker_pid

    stage.database.stop(signal.SIGQUIT)
    stage.broker.stop(signal.SIGKILL)
    for loop in ("pulse", "relay", "reaper"):
        until(lambda loop=loop: f"the {loop} failed and goes on" in worker.told, f"the {loop} has noticed")
    stage.database.start()
    stage.broker.start()

    assert_pulse_beats(stage, pid)
    assert_relay_sends(stage)
    assert_reaper_recovers(stage)
    assert worker.worker_pid == pid
    stage.assert_sound()


def assert_pulse_beats(stage: Stage, pid: int) -> None:
    query = "SELECT max(seen_at) FROM durable.workers WHERE pid = :pid"
    stage.engine.dispose()
    seen = until(lambda: stage.ask(query, pid=pid), "the worker is known")
    until(lambda: stage.ask(query, pid=pid) > seen, "its pulse beats")


def assert_relay_sends(stage: Stage) -> None:
    """A message that no courier has sent is sent."""
    workflow = stage.create(Later, wait=1)
    until(lambda: workflow.refresh().state == "finished", "it is finished")


def assert_reaper_recovers(stage: Stage) -> None:
    """What a worker held that was never heard of again is run by the one that is there."""
    workflow = stage.create(Later, wait=3600)
    assert claim(stage.runtime, workflow) is not None
    until(lambda: workflow.refresh().state == "finished", "it is recovered and finished")
    assert outcomes(workflow) == [("note", "recovered"), ("note", "success")]

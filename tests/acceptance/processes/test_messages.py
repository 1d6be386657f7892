"""Messages that come many times, come too early or were never ours: they change nothing but timing."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any
from uuid import uuid4

import dramatiq
import pytest

from durable.worker import receive_message
from tests.acceptance.processes.app import Chain, Hold, Later
from tests.acceptance.processes.stage import Stage
from tests.acceptance.processes.wire import a_wire
from tests.waiting import until

COPIES = 50
QUEUE = "dramatiq:default"
TOMORROW = 24 * 3600


def message(actor: object, *args: object, **kwargs: object) -> dict[str, Any]:
    """Return a message as Dramatiq writes it, under a key of its own in Redis."""
    made: dramatiq.Message[Any] = dramatiq.Message("default", "", args, kwargs, {"redis_message_id": str(uuid4())})
    return json.loads(made.encode()) | {"actor_name": actor}


def push(stage: Stage, *messages: dict[str, Any]) -> None:
    """Put messages into Redis as anybody who reaches it can."""
    for made in messages:
        push_bytes(stage, made["options"]["redis_message_id"], json.dumps(made).encode())


def push_bytes(stage: Stage, key: str, data: bytes) -> None:
    stage.redis.hset(f"{QUEUE}.msgs", key, data)
    stage.redis.rpush(QUEUE, key)


def await_all_taken(stage: Stage) -> None:
    """Wait until no message waits in Redis and none is in the hands of a worker."""
    until(lambda: not stage.redis.exists(QUEUE) and not stage.redis.exists(f"{QUEUE}.msgs"), "all messages are taken")


def everything(stage: Stage) -> list[list[tuple[Any, ...]]]:
    """Return all rows that say where workflows stand."""
    tables = ("workflows", "executions", "outbox")
    return [stage.rows(f"SELECT t::text FROM durable.{table} t ORDER BY 1") for table in tables]


def successes(stage: Stage, workflow: Any) -> int:
    query = "SELECT count(*) FROM durable.executions WHERE workflow_id = :id AND outcome = 'success'"
    return int(stage.ask(query, id=workflow.id))


# --- many times


def test_a_message_that_fifty_receivers_get_at_once_is_run_by_one_of_them(stage):
    workflow = stage.create(Chain)
    execution = str(workflow.current_execution.id)
    together = Barrier(8)

    def receive(number: int) -> None:
        if number < 8:
            together.wait(30)
        receive_message(stage.runtime, "chain", execution)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(receive, range(COPIES)))

    assert [(one.step, one.outcome) for one in workflow.history] == [("one", "success"), ("two", None)]
    assert stage.effects(workflow.id) == {"one": 1}
    stage.assert_sound()


def test_a_message_that_fifty_receivers_get_while_its_step_runs_is_refused_to_all_but_the_first(
    stage, monkeypatch, tmp_path
):
    monkeypatch.setenv("DURABLE_DATABASE_URL", stage.database.url)
    go_on = tmp_path / "go on"
    workflow = stage.create(Hold, input=str(go_on))
    execution = str(workflow.current_execution.id)

    with ThreadPoolExecutor(8) as threads:
        first = threads.submit(receive_message, stage.runtime, "hold", execution)
        until(lambda: stage.ask("SELECT count(*) FROM journal"), "the step runs")
        list(threads.map(lambda _: receive_message(stage.runtime, "hold", execution), range(COPIES)))
        assert workflow.refresh().state == "performing"
        go_on.touch()
        first.result(30)

    assert stage.ask("SELECT count(*) FROM journal WHERE event = 'began'") == 1
    assert [(one.step, one.outcome) for one in workflow.history] == [("hold", "success"), ("after", None)]
    assert stage.effects(workflow.id) == {"hold": 1}


def test_fifty_copies_of_a_message_in_redis_make_the_workers_run_it_once(stage):
    workflow = stage.create(Chain)
    stage.runtime.courier.flush()
    execution = str(workflow.current_execution.id)
    push(stage, *(message("chain", execution) for _ in range(COPIES)))
    assert stage.redis.llen(QUEUE) == COPIES + 1

    workers = [stage.start_worker(ready=False) for _ in range(2)]
    stage.await_finished(1)
    await_all_taken(stage)

    assert successes(stage, workflow) == 3
    assert [one.step for one in workflow.history] == ["one", "two", "three"]
    assert stage.effects(workflow.id) == {"one": 1, "two": 1, "three": 1}
    stage.assert_sound()

    push(stage, *(message("chain", execution) for _ in range(COPIES)))
    await_all_taken(stage)

    assert successes(stage, workflow) == 3
    assert not any(worker.ended for worker in workers)
    stage.assert_sound()


# --- under way


@pytest.mark.slow
def test_messages_that_redis_sent_and_a_worker_never_got_are_put_back_by_that_worker(stage):
    with a_wire(stage.broker.port) as wire:
        worker = stage.start_worker(redis_url=f"redis://127.0.0.1:{wire.port}")
        pid = worker.worker_pid
        wire.break_at(b'"chain"')
        chains = [stage.create(Chain) for _ in range(10)]
        until(wire.broken.is_set, "an answer with messages is lost")

        stage.await_finished(len(chains), seconds=20)  # the relay would look half a minute later

    assert "never arrived: they are put back" in worker.told
    assert worker.worker_pid == pid
    stage.assert_sound()


# --- forged

LONG = "x" * 10_000
GARBAGE = [(5,), ({"id": 1},), (LONG,), (), (None,), ([],), (True,), ("",), ("5", "6"), ("\x00\ud800",)]


def test_messages_that_nobody_sent_are_dropped_and_the_worker_lives(stage):
    worker = stage.start_worker()
    pid = worker.worker_pid
    early = stage.create(Later, wait=TOMORROW)
    paused = stage.create(Later, wait=TOMORROW)
    paused.pause("held")
    before = everything(stage)
    due_tomorrow = str(early.current_execution.id)

    push(stage, message("chain", str(uuid4())))  # no such execution
    push(stage, message("chain", due_tomorrow))  # another class's
    push(stage, message("later", due_tomorrow))  # too early
    push(stage, message("later", str(paused.history[0].id)))  # paused
    push(stage, *(message("chain", *arguments) for arguments in GARBAGE))
    push(stage, message("chain", execution_id=7, more="yes"), message("later", due_tomorrow, "more", more="yes"))
    await_all_taken(stage)

    assert everything(stage) == before
    dropped = [line for line in worker.told.splitlines() if "which is not the id of an execution: dropped" in line]
    assert len(dropped) == len(GARBAGE) + 1
    assert max(map(len, worker.told.splitlines())) < 1000
    assert_lives(stage, worker, pid, finished=1)
    stage.assert_sound()


def test_a_message_that_cannot_be_read_is_logged_and_its_neighbours_are_run(stage):
    worker = stage.start_worker()
    pid = worker.worker_pid
    before = stage.create(Later, wait=TOMORROW)

    for data in (b"\x80\x04 not JSON", b"", b"[]", b"5", b'{"queue_name": "default"}', b"\xff" * 10_000):
        push_bytes(stage, str(uuid4()), data)
    stage.create(Chain)

    stage.await_finished(1)
    assert worker.told.count("cannot be read and is dropped") == 6
    await_all_taken(stage)
    assert before.refresh().state == "ready"
    assert_lives(stage, worker, pid, finished=2)
    stage.assert_sound()


WRONG_PARTS: list[dict[str, Any]] = [
    {"queue_name": "elsewhere"},
    {"queue_name": ["default"]},
    {"actor_name": ["chain"]},
    {"actor_name": None},
    {"options": None},
    {"options": {}},
    {"args": None, "kwargs": 5},
    {"message_timestamp": "yesterday"},
    {"message_id": ["x"]},
]


def test_messages_of_wrong_parts_cost_the_worker_neither_a_thread_nor_its_consumer(stage):
    worker = stage.start_worker(threads=2)
    pid = worker.worker_pid

    for wrong in WRONG_PARTS * 3:
        push_bytes(stage, str(uuid4()), json.dumps(message("chain", str(uuid4())) | wrong).encode())
    await_all_taken(stage)

    assert_lives(stage, worker, pid, finished=3)
    assert "Consumer encountered an unexpected error" not in worker.told


def test_a_message_for_an_actor_that_is_not_ours_becomes_a_dead_letter_as_usual(stage):
    worker = stage.start_worker()
    pid = worker.worker_pid

    push(stage, message("somebody.elses", "some", "arguments"), message("somebody.elses"))

    until(lambda: stage.dead_letters() == 2, "both are dead letters")
    assert_lives(stage, worker, pid, finished=1)


def test_a_forged_message_for_a_class_that_is_not_loaded_makes_nothing_due_before_its_time(stage):
    worker = stage.start_worker()
    pid = worker.worker_pid
    early = stage.create(Later, wait=TOMORROW)
    before = everything(stage)

    for execution in (str(early.current_execution.id), str(uuid4())):
        forged = message("no.such.class", execution)
        forged["options"]["durable"] = 1
        push(stage, forged)
    await_all_taken(stage)

    until(lambda: worker.told.count("is not loaded here") == 2, "the worker says so")
    assert everything(stage) == before
    assert_lives(stage, worker, pid, finished=1)
    stage.assert_sound()


def assert_lives(stage: Stage, worker: Any, pid: int, *, finished: int) -> None:
    """The same process runs the next workflows, each in time."""
    while stage.count("finished") < finished:
        done = stage.count("finished")
        stage.create(Chain)
        stage.await_finished(done + 1, seconds=20)
    assert worker.worker_pid == pid

"""Waits: never early, hardly late, in the order of their due times, and nothing in Redis before that."""

from __future__ import annotations

import random
from datetime import timedelta
from statistics import median

import dramatiq
import pytest

from durable import relay
from durable.testing import travel
from durable.worker import receive_message
from tests.acceptance.processes.app import Later
from tests.acceptance.processes.stage import Stage
from tests.acceptance.processes.test_volume import relaying, say
from tests.waiting import until

QUEUE = "dramatiq:default"


def test_a_wait_of_two_weeks_is_a_row_until_then_and_a_message_thereafter(stage):
    workflow = stage.create(Later, wait="2w")
    stage.runtime.courier.flush()
    assert stage.ask("SELECT due_at - now() FROM durable.outbox") > timedelta(days=13, hours=23)
    assert (relay.drain(stage.runtime), messages(stage)) == (0, [])

    travel(days=13, hours=23)
    assert (relay.drain(stage.runtime), messages(stage)) == (0, [])

    travel(hours=1)
    (execution,) = workflow.history
    assert (relay.drain(stage.runtime), messages(stage)) == (1, [str(execution.id)])
    take_message(stage)
    assert workflow.refresh().state == "finished"
    assert workflow.history[0].started_at >= execution.scheduled_for
    assert messages(stage) == []
    stage.assert_sound()


def test_a_message_that_comes_two_weeks_early_changes_nothing(stage):
    workflow = stage.create(Later, wait="2w")
    travel(days=14)
    assert relay.drain(stage.runtime) == 1

    stage.start_worker()  # by whose clock it is still today

    until(lambda: not messages(stage) and unacknowledged(stage) == 0, "the worker has put the message away")
    assert workflow.refresh().state == "ready"
    assert stage.ask("SELECT due_at - now() FROM durable.outbox") > timedelta(days=13, hours=23)
    stage.assert_sound()


def test_a_wait_of_a_second_ends_on_time(stage):
    stage.start_worker()
    for subject in stage.subjects(10):
        Later.create(subject, wait="1s")

    stage.await_finished(10)

    late = [late for (late,) in stage.rows("SELECT started_at - scheduled_for FROM durable.executions")]
    say(f"\nstarted after they were due: median {median(late)}, at most {max(late)}")
    assert min(late) >= timedelta()
    assert median(late) < timedelta(seconds=2)
    stage.assert_sound()


@pytest.mark.timeout(180)
def test_waits_end_in_the_order_of_their_due_times_whatever_the_order_of_their_creation(stage):
    waits = [timedelta(milliseconds=500 + 50 * number) for number in range(50)]
    random.Random(7).shuffle(waits)
    subjects = stage.subjects(20 * len(waits))
    with relaying(stage):
        for number, wait in enumerate(waits):
            Later.create_many(subjects[20 * number : 20 * number + 20], wait=wait)
        until(lambda: len(messages(stage)) == len(subjects), "all are sent")

    by_due_time = stage.rows("SELECT id::text FROM durable.executions ORDER BY scheduled_for, id")
    assert messages(stage) == [id for (id,) in by_due_time]

    stage.start_worker(threads=8)
    stage.await_finished(len(subjects))
    assert stage.ask("SELECT count(*) FROM durable.executions WHERE started_at < scheduled_for") == 0
    stage.assert_sound()


def messages(stage: Stage) -> list[str]:
    """Return the executions whose messages wait in Redis, the next one first."""
    assert stage.redis.llen(f"{QUEUE}.DQ") == 0
    return [id.decode() for id in stage.redis.lrange(QUEUE, 0, -1)]


def unacknowledged(stage: Stage) -> int:
    """Return how many messages Redis has the content of: those in line and those that a worker has taken."""
    return int(stage.redis.hlen(f"{QUEUE}.msgs"))


def take_message(stage: Stage) -> None:
    """Do with the next message what a worker does; the clock of a worker process would not have moved."""
    broker = stage.runtime.broker
    broker.declare_queue("default")
    consumer = broker.consume("default", prefetch=1, timeout=1000)
    message: dramatiq.Message = next(consumer)
    receive_message(stage.runtime, message.actor_name, *message.args)
    consumer.ack(message)
    consumer.close()

"""What a worker had fetched and is not done with comes back, whether it died or ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from durable.broker.consumer import BlockingConsumer
from durable.broker.redis import BlockingRedisBroker
from durable.ids import new_id
from durable.store.rows import Letter

QUEUE = "dramatiq:default"
HEARTBEATS = "dramatiq:__heartbeats__"


@pytest.fixture
def broker(redis_url: str) -> Iterator[Callable[[], BlockingRedisBroker]]:
    """Make brokers of one empty Redis, as many processes have them."""
    made: list[BlockingRedisBroker] = []

    def make() -> BlockingRedisBroker:
        made.append(BlockingRedisBroker(redis_url, namespace="dramatiq"))
        made[-1].declare_queue("default")
        return made[-1]

    make().client.flushall()
    yield make
    for one in made:
        one.client.close()


def send(broker: BlockingRedisBroker, count: int) -> list[str]:
    letters = [Letter(new_id(), "chain", "default") for _ in range(count)]
    assert broker.deliver(letters) == count
    return [str(letter.execution_id) for letter in letters]


def fetch(broker: BlockingRedisBroker, count: int) -> BlockingConsumer:
    """Have a worker fetch messages; it has begun the first of them."""
    consumer = broker.consume("default", prefetch=count, timeout=1000)
    assert next(consumer) is not None
    assert broker.client.scard(f"dramatiq:__acks__.{broker.broker_id}.default") == count
    return consumer


@contextmanager
def away(broker: BlockingRedisBroker) -> Iterator[None]:
    """Have a worker call where nobody is: at the discard port."""
    port = call_at(broker, 9)
    try:
        yield
    finally:
        call_at(broker, port)


def call_at(broker: BlockingRedisBroker, port: int) -> int:
    """Have a worker call Redis at another port from now on, and return the one before."""
    pool = broker.client.connection_pool
    pool.disconnect()
    pool.reset()  # connections that were made before would call the same port again
    before, pool.connection_kwargs["port"] = pool.connection_kwargs["port"], port
    return int(before)


def queued(broker: BlockingRedisBroker) -> list[str]:
    return [key.decode() for key in broker.client.lrange(QUEUE, 0, -1)]


def test_what_a_dead_worker_had_fetched_comes_back_before_what_is_younger(broker):
    dead, other = broker(), broker()
    sent = send(dead, 5)
    fetch(dead, 3)
    assert queued(other) == sent[3:]

    other.revive(dead.broker_id, ["default"])

    assert queued(other) == sent
    other.revive(dead.broker_id, ["default"])
    assert queued(other) == sent, "the second reaper finds nothing to return"


def test_a_worker_that_ends_returns_what_it_had_fetched_itself(broker):
    ending = broker()
    sent = send(ending, 5)
    fetch(ending, 3)

    ending.revive(ending.broker_id, ending.get_declared_queues())

    assert queued(ending) == sent


def test_what_a_dead_worker_was_done_with_does_not_come_back(broker):
    dead, other = broker(), broker()
    sent = send(dead, 2)
    consumer = dead.consume("default", prefetch=2, timeout=1000)
    consumer.ack(next(consumer))

    other.revive(dead.broker_id, ["default"])

    assert queued(other) == sent[1:]


def test_what_was_fetched_and_never_arrived_is_put_back_and_what_is_in_hand_is_not(broker):
    worker = broker()
    sent = send(worker, 5)
    consumer = fetch(worker, 2)
    assert next(consumer) is not None
    assert len(worker.do_fetch("default", 2)) == 2, "an answer that gets lost"
    assert queued(worker) == sent[4:]

    worker.return_lost("default")

    assert queued(worker) == sent[2:]


def test_a_message_whose_end_redis_has_not_heard_of_is_put_back(broker):
    worker = broker()
    sent = send(worker, 2)
    consumer = worker.consume("default", prefetch=1, timeout=1000)
    message = next(consumer)
    with away(worker):
        consumer.ack(message)
    assert queued(worker) == sent[1:]

    worker.return_lost("default")

    assert queued(worker) == sent


def test_what_another_consumer_of_the_process_had_fetched_is_in_hand_as_well(broker):
    worker = broker()
    sent = send(worker, 3)
    fetch(worker, 1)

    another = worker.consume("default", prefetch=2, timeout=1000)
    assert next(another) is not None
    worker.return_lost("default")

    assert queued(worker) == sent[2:]


def test_what_a_consumer_had_fetched_and_nobody_has_seen_is_put_back(broker):
    worker = broker()
    sent = send(worker, 3)
    fetch(worker, 3).close()  # it has broken down after the first

    worker.return_lost("default")

    assert queued(worker) == sent[1:]


def test_nothing_is_asked_for_a_worker_whose_broker_has_no_name(broker):
    other = broker()
    sent = send(other, 1)

    other.revive(None, ["default"])

    assert queued(other) == sent


def test_a_worker_that_takes_no_more_still_gives_signs_of_life(broker):
    ending = broker()
    sent = send(ending, 2)
    consumer = fetch(ending, 1)
    ending.client.zadd(HEARTBEATS, {ending.broker_id: 1})

    ending.retire()

    assert next(consumer) is None
    assert queued(ending) == sent[1:]
    assert ending.client.zscore(HEARTBEATS, ending.broker_id) > 1000 * (time.time() - 60)


def test_a_worker_that_takes_no_more_does_not_mind_that_redis_is_away(broker):
    ending = broker()
    send(ending, 1)
    consumer = fetch(ending, 1)
    ending.retire()

    with away(ending):
        assert next(consumer) is None

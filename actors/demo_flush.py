"""The demo's second disaster: Redis forgets every message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import redis

from actors.demo_stage import Stage
from actors.fraud_review import FraudReview
from actors.order_fulfilment import OrderFulfilment

QUEUES = tuple({workflow.options.queue for workflow in (OrderFulfilment, FraudReview)})


@dataclass(frozen=True)
class Flush:
    """What Redis lost, and when: the message of an execution has the execution's id."""

    at: datetime
    lost: tuple[UUID, ...]


def waiting_messages(stage: Stage) -> int:
    """Return how many messages wait in Redis for a worker to fetch them."""
    with _client(stage) as client:
        return sum(int(client.llen(key)) for key in _lists(stage))


def lose_messages(stage: Stage) -> Flush:
    """Empty Redis and return what was in it; of a Redis that is not the demo's own, only the demo's keys."""
    with _client(stage) as client, client.pipeline(transaction=True) as pipe:
        for key in _lists(stage):
            pipe.lrange(key, 0, -1)
        if stage.owns_redis:
            pipe.flushall()
        else:
            pipe.delete(*_own_keys(stage, client))
        *lists, _ = pipe.execute()
    return Flush(stage.ask("SELECT clock_timestamp()"), tuple(UUID(key.decode()) for ids in lists for key in ids))


@contextmanager
def clean_redis(stage: Stage) -> Iterator[None]:
    """Leave nothing in a Redis that goes on after the demo."""
    try:
        yield
    finally:
        if not stage.owns_redis:
            with _client(stage) as client:
                client.delete(*_own_keys(stage, client))


def _own_keys(stage: Stage, client: redis.Redis) -> list[str | bytes]:
    """Return the demo's keys, and one of them at least: there is no command that deletes none."""
    return [*_lists(stage), *client.scan_iter(f"{_namespace(stage)}:*", count=1000)]


def _lists(stage: Stage) -> list[str]:
    return [f"{_namespace(stage)}:{queue}" for queue in QUEUES]


def _namespace(stage: Stage) -> str:
    return stage.runtime.settings.redis_namespace


@contextmanager
def _client(stage: Stage) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(str(stage.runtime.settings.redis_url)) as client:
        yield client

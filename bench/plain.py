"""A Dramatiq actor that does nothing, on Dramatiq's own broker with its own settings: `dramatiq bench.plain`."""

from __future__ import annotations

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker

NAMESPACE = "bench_plain"


def declare(url: str) -> dramatiq.Actor[[], None]:
    """Make the actor known to a broker of its own, which the command `dramatiq` then takes."""
    broker = RedisBroker(url=url, namespace=NAMESPACE)
    dramatiq.set_broker(broker)
    return dramatiq.actor(broker=broker)(nothing)


def nothing() -> None:
    """Do nothing."""


if "BENCH_PLAIN_URL" in os.environ:  # in the workers, not in the process that measures
    declare(os.environ["BENCH_PLAIN_URL"])

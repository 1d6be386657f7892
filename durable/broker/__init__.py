"""The brokers: Dramatiq's own, made to fit."""

from __future__ import annotations

from dramatiq.middleware import AsyncIO, CurrentMessage

from durable.broker.patient import Patient, read_id
from durable.broker.redis import BlockingRedisBroker
from durable.errors import DurableError, NoBroker
from durable.settings import Settings

__all__ = ["Patient", "make_broker", "read_id", "required_broker"]


def make_broker(settings: Settings) -> Patient | None:
    """Make the broker that the settings name, None if they name none; it connects when it is first used."""
    if settings.rabbitmq_url:
        made = _rabbitmq(settings.rabbitmq_url)
    elif settings.redis_url:
        made = _redis(settings.redis_url, settings.redis_namespace)
    else:
        return None
    made.add_middleware(AsyncIO())
    made.add_middleware(CurrentMessage())
    return made


def required_broker(broker: Patient | None) -> Patient:
    """Return the broker, or say that none is known."""
    if broker is None:
        raise NoBroker
    return broker


def _redis(url: str, namespace: str) -> Patient:
    try:
        return BlockingRedisBroker(url, namespace=namespace)
    except ValueError as error:
        raise DurableError(f"cannot read the Redis URL: {error}: it looks like redis://host:6379/0") from None


def _rabbitmq(url: str) -> Patient:
    try:
        from durable.broker.rabbitmq import PatientRabbitmqBroker
    except ImportError:
        raise DurableError("RabbitMQ needs another package: pip install 'durable[rabbitmq]'") from None
    return PatientRabbitmqBroker(url=url)

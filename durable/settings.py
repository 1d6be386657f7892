"""The settings, each from `configure()` or the environment variable DURABLE_<NAME>."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from durable import durations

Span = Annotated[timedelta, BeforeValidator(durations.parse)]
LOOK_WITHIN = timedelta(seconds=2)
"""How soon the relay looks after a message that the process which committed it should have sent itself."""


def _span_or_never(value: durations.Duration | None) -> timedelta | None:
    return None if value in (None, "never") else durations.parse(value)


def _names(value: object) -> object:
    return tuple(filter(None, (name.strip() for name in value.split(",")))) if isinstance(value, str) else value


Modules = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_names)]


@dataclass(frozen=True)
class ErrorReport:
    """An exception of a step, with everything an error tracker wants to know of it."""

    error: BaseException
    name: str
    workflow_id: UUID
    hero_type: str | None
    hero_key: str | None
    execution_id: UUID
    step: str
    attempt: int
    action: str


ErrorReporter = Callable[[ErrorReport], None]


class Settings(BaseSettings):
    """What can be set."""

    model_config = SettingsConfigDict(env_prefix="DURABLE_", extra="forbid", frozen=True)

    database_url: str | None = Field(
        None, repr=False, description="Postgres, e.g. postgresql://user:password@host/database"
    )
    redis_url: str | None = Field(None, repr=False, description="Redis or Valkey, e.g. redis://host:6379/0")
    rabbitmq_url: str | None = Field(
        None, repr=False, description="RabbitMQ in the place of Redis, e.g. amqp://user:password@host:5672/"
    )
    redis_namespace: str = Field(
        "dramatiq", description="what the keys in Redis begin with; applications that share a Redis take one each"
    )
    modules: Modules = Field(
        (), description="the modules that define workflows, for the workers; in the environment with commas"
    )
    relay_in_workers: bool = Field(True, description="whether worker processes run the relay")
    reaper_in_workers: bool = Field(True, description="whether worker processes run the reaper")
    max_payload: int = Field(1_000_000, gt=0, description="bytes of JSON that one input, result or `data` may have")
    lost_worker_after: Span = Field(
        timedelta(seconds=15), description="how long a claim holds without a sign of life of its worker"
    )
    on_lost_worker: Literal["reattempt", "pause", "cancel"] = Field(
        "reattempt", description="what becomes of a workflow whose worker was lost in the middle of a step"
    )
    max_crashes: int = Field(
        3,
        gt=0,
        description="lost workers in a row after which a step is not run again and its workflow pauses",
    )
    shutdown_grace: Span = Field(
        timedelta(seconds=20), description="how long a running step may go on after SIGTERM before it is given back"
    )
    stuck_scheduled_after: Span = Field(
        timedelta(minutes=15), description="when the message of an execution that nobody takes is sent again regardless"
    )
    delete_after: Annotated[timedelta | None, BeforeValidator(_span_or_never)] = Field(
        timedelta(days=30), description="when ended workflows are deleted, `never` to keep them"
    )
    error_reporter: ErrorReporter | None = Field(
        None,
        exclude=True,
        description="called with an ErrorReport; by default an ERROR log record is written",
    )

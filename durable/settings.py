"""The settings, each from `configure()` or the environment variable DURABLE_<NAME>."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from durable import durations

Span = Annotated[timedelta, BeforeValidator(durations.parse)]


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
    error_reporter: ErrorReporter | None = Field(
        None,
        exclude=True,
        description="called with an ErrorReport; by default an ERROR log record is written",
    )

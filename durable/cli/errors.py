"""Which sentence and which exit code an error becomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

REFUSED, USAGE, NOT_FOUND = 1, 2, 3

_WRONG_SCHEMA = ("42P01", "42703", "3F000")


@dataclass(frozen=True)
class Told:
    """An error as the command tells it."""

    sentence: str
    code: int


class CommandError(Exception):
    """What a command itself finds wrong."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code


def misused(sentence: str) -> CommandError:
    """Return the error for an argument that cannot be read."""
    return CommandError(sentence, USAGE)


def not_found(sentence: str) -> CommandError:
    """Return the error for something that is not there."""
    return CommandError(sentence, NOT_FOUND)


def told_of(error: Exception) -> Told | None:
    """Return how an error is told, None if it is a bug and nobody expected it."""
    told = _of_ours(error) or _of_settings(error) or _of_database(error) or _of_broker(error)
    return told and Told(in_one_line(told.sentence), told.code)


def in_one_line(text: object) -> str:
    """Return text without line breaks, as drivers and pydantic write them."""
    return " ".join(str(text).split())


def _of_ours(error: Exception) -> Told | None:
    from durable.errors import ClassNotLoaded, DurableError, WorkflowNotFound

    if isinstance(error, CommandError):
        return Told(str(error), error.code)
    if isinstance(error, WorkflowNotFound):
        return Told(f"{error}: `durable list` shows which there are", NOT_FOUND)
    if isinstance(error, ClassNotLoaded):
        return Told(f"{error}, by naming it in DURABLE_MODULES or [tool.durable] modules of pyproject.toml", REFUSED)
    return Told(str(error), REFUSED) if isinstance(error, DurableError) else None


def _of_settings(error: Exception) -> Told | None:
    from pydantic import ValidationError

    if not isinstance(error, ValidationError) or error.title != "Settings":
        return None
    wrong = error.errors(include_url=False, include_input=False)[0]
    name = "_".join(str(part) for part in wrong["loc"]).upper()
    return Told(f"the setting DURABLE_{name} is wrong: {wrong['msg']}", REFUSED)


def _of_database(error: Exception) -> Told | None:
    import psycopg
    from sqlalchemy.exc import DBAPIError

    if isinstance(error, DBAPIError):
        return _refused_by_database(error.orig, error.statement, connected=error.statement is not None)
    if isinstance(error, psycopg.Error):
        return _refused_by_database(error, None, connected=error.sqlstate is not None)
    return None


def _refused_by_database(error: Any, statement: str | None, *, connected: bool) -> Told:
    if getattr(error, "sqlstate", None) in _WRONG_SCHEMA and "durable." in (statement or "durable."):
        return Told("the database does not have the tables that durable needs: run `durable migrate`", REFUSED)
    if connected:
        return Told(f"the database refused: {str(error).partition(chr(10))[0]}", REFUSED)
    return Told(f"cannot reach the database: {error}: is it up, and is DURABLE_DATABASE_URL right?", REFUSED)


def _of_broker(error: Exception) -> Told | None:
    import redis
    from dramatiq.errors import BrokerError

    if not isinstance(error, redis.RedisError | BrokerError):
        return None
    return Told(f"cannot use the broker: {error}: is it up, and is DURABLE_REDIS_URL right?", REFUSED)

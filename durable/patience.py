"""Patience with a database that goes away: what may be tried again, and for how long."""

from __future__ import annotations

from datetime import timedelta

import psycopg
from sqlalchemy.exc import DBAPIError
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

_RETRIABLE = ("08", "40001", "40P01", "57P01", "57P02", "57P03", "25006")


def is_transient(error: BaseException) -> bool:
    """Tell whether the database, not the step, is at fault: a lost connection, a restart, a deadlock."""
    if isinstance(error, DBAPIError):
        return error.connection_invalidated or (error.orig is not None and is_transient(error.orig))
    if not isinstance(error, psycopg.OperationalError):
        return False
    return error.sqlstate is None or error.sqlstate.startswith(_RETRIABLE)


def patiently(limit: timedelta) -> Retrying:
    """Try again while the database is at fault, for so long."""
    return Retrying(
        retry=retry_if_exception(is_transient),
        stop=stop_after_delay(limit),
        wait=wait_random_exponential(multiplier=0.05, max=1.0),
        reraise=True,
    )

"""Patience with a database that goes away: whose fault an error is, what may be tried again, and for how long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import psycopg
from sqlalchemy import Engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

_READ_ONLY = "25006"
_RETRIABLE = ("08", "40001", "40P01", "57P01", "57P02", "57P03", "57P05", _READ_ONLY)
_PASSING = ("53", "55P03", "57014")
"""Short of resources, a lock that was not to be had in time, canceled: of a statement of ours, they pass as well."""
_MARK = "durable_is_at_fault"


def is_transient(error: BaseException) -> bool:
    """Tell whether the database, not the step, is at fault: a lost connection, a restart, a deadlock."""
    if isinstance(error, DBAPIError):
        return error.connection_invalidated or (error.orig is not None and is_transient(error.orig))
    if not isinstance(error, psycopg.OperationalError | psycopg.errors.ReadOnlySqlTransaction):
        return False
    return error.sqlstate is None or error.sqlstate.startswith(_RETRIABLE)


def may_pass(error: BaseException) -> bool:
    """Tell whether a statement of ours may succeed when it is tried again; a step's own limits are the step's."""
    if isinstance(error, DBAPIError) and error.orig is not None and may_pass(error.orig):
        return True
    passing = isinstance(error, psycopg.OperationalError) and (error.sqlstate or "").startswith(_PASSING)
    return passing or isinstance(error, PoolTimeout) or is_transient(error)


@contextmanager
def not_the_steps() -> Iterator[None]:
    """Mark the errors of our own statements that may pass: a step whose body went well does not answer for them."""
    try:
        yield
    except Exception as error:
        if may_pass(error):
            setattr(error, _MARK, True)
        raise


def patiently(limit: timedelta) -> Retrying:
    """Try a statement of ours again while that may help, for so long."""
    return Retrying(
        retry=retry_if_exception(may_pass),
        stop=stop_after_delay(limit),
        wait=wait_random_exponential(multiplier=0.05, max=1.0),
        reraise=True,
    )


def watch(engine: Engine) -> None:
    """Mark the errors for which this database is at fault: a step may have others, whose faults are its own affair."""
    if not event.contains(engine, "handle_error", _mark):
        event.listen(engine, "handle_error", _mark)


def is_at_fault(error: BaseException | None) -> bool:
    """Tell whether an error is a marked one, or was raised because of one."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if hasattr(error, _MARK):
            return True
        seen.add(id(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False


def _mark(context: ExceptionContext) -> None:
    error = context.sqlalchemy_exception
    if error is None:
        return
    if context.connection is None or is_transient(error):  # without a connection it was not even reached
        setattr(error, _MARK, True)
    if getattr(context.original_exception, "sqlstate", None) == _READ_ONLY:
        context.is_disconnect = True  # what was the primary is not any more: the pool must look for it anew

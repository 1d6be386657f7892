"""The bridge between code that awaits and code that does not."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncSession, async_session
from sqlalchemy.orm import Session

T = TypeVar("T")


def finish(value: object) -> object:
    """Return the value, or what it comes to if it is a coroutine."""
    if not inspect.iscoroutine(value):
        return value
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(value)
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(copy_context().run, _run, value).result()


def _run(coroutine: Coroutine[Any, Any, object]) -> object:
    try:
        return asyncio.run(coroutine)
    except asyncio.CancelledError as error:
        raise RuntimeError("the step's coroutine was canceled from inside") from error


async def awaited(call: Callable[[], T], session: AsyncSession | Session | None) -> T:
    """Make a call that does not await: on its async session if it has one, else in a thread."""
    owner = async_session(session) if isinstance(session, Session) else session
    if owner is None:
        return await asyncio.to_thread(call)
    return await owner.run_sync(lambda _: call())

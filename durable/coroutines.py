"""The bridge between code that awaits and code that does not."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import Any, TypeVar

from dramatiq.asyncio import get_event_loop_thread
from sqlalchemy.ext.asyncio import AsyncSession, async_session
from sqlalchemy.orm import Session

T = TypeVar("T")

_LOOK_UP = 0.1
"""Seconds after which a thread that waits for a coroutine lets an interrupt through."""
_FAREWELL = 2.0


def finish(value: object) -> object:
    """Return the value, or what it comes to if it is a coroutine: on the worker's event loop, where there is one."""
    if not inspect.iscoroutine(value):
        return value
    worker = get_event_loop_thread()
    if worker is not None and worker.loop.is_running():
        return _finish_on(worker.loop, value)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(value)
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(copy_context().run, _run, value).result()


def _finish_on(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, object]) -> object:
    """Run a coroutine on a loop in another thread; it is canceled if this thread is interrupted meanwhile."""
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        while not future.done():
            wait([future], timeout=_LOOK_UP)
    except BaseException:
        _cancel(future)
        raise
    return _result(future)


def _cancel(future: Future[object]) -> None:
    """Cancel a coroutine and give it a moment to clean up."""
    future.cancel()
    wait([future], timeout=_FAREWELL)


def _result(future: Future[object]) -> object:
    try:
        return future.result()
    except (CancelledError, asyncio.CancelledError) as error:
        raise RuntimeError("the step's coroutine was canceled from inside") from error


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

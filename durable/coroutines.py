"""The bridge between code that awaits and code that does not."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any, TypeVar

from dramatiq.asyncio import get_event_loop_thread
from sqlalchemy.ext.asyncio import AsyncSession, async_session
from sqlalchemy.orm import Session

T = TypeVar("T")

_LOOK_UP = 0.1
"""Seconds after which a thread that waits for a coroutine lets an interrupt through."""
_FAREWELL = 2.0
"""Seconds in which a coroutine that was canceled may clean up."""


def finish(value: object) -> object:
    """Return the value, or what it comes to if it is a coroutine: on the worker's event loop, where there is one."""
    if not inspect.iscoroutine(value):
        return value
    worker = get_event_loop_thread()
    if worker is not None and worker.loop.is_running():
        return _finish_on(worker.loop, value)
    with _a_loop() as loop:
        return _finish_on(loop, value)


def _finish_on(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, object]) -> object:
    """Run a coroutine on a loop in another thread; if this one is interrupted it is canceled, and may clean up."""
    ended = Event()

    async def run() -> object:
        try:
            return await coroutine
        finally:
            ended.set()

    future = asyncio.run_coroutine_threadsafe(run(), loop)
    try:
        while not ended.wait(_LOOK_UP):
            pass
    except BaseException:
        future.cancel()
        ended.wait(_FAREWELL)
        raise
    try:
        return future.result()
    except (CancelledError, asyncio.CancelledError) as error:
        raise RuntimeError("the step's coroutine was canceled from inside") from error


@contextmanager
def _a_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Run an event loop in a thread of its own: one in this thread would sleep through its interrupts."""
    running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        enough = asyncio.Event()
        running.set_result((asyncio.get_running_loop(), enough))
        await enough.wait()

    thread = Thread(target=lambda: asyncio.run(serve()), name="durable-event-loop", daemon=True)
    thread.start()
    loop, enough = running.result()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(enough.set)
        thread.join()


async def awaited(call: Callable[[], T], session: AsyncSession | Session | None) -> T:
    """Make a call that does not await: on its async session if it has one, else in a thread."""
    owner = async_session(session) if isinstance(session, Session) else session
    if owner is None:
        return await asyncio.to_thread(call)
    return await owner.run_sync(lambda _: call())

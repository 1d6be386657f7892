"""The bridge between code that awaits and code that does not."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from threading import Event, Lock, Thread, current_thread
from typing import Any, TypeVar

from dramatiq.asyncio import get_event_loop_thread
from sqlalchemy.ext.asyncio import AsyncSession, async_session
from sqlalchemy.orm import Session

T = TypeVar("T")

_LOOK_UP = 0.1
"""Seconds after which a thread that waits for a coroutine lets an interrupt through."""
_FAREWELL = 2.0
"""Seconds in which a coroutine that was canceled may clean up."""
_left: ContextVar[Event | None] = ContextVar("durable_left", default=None)
"""Set when nobody waits any more for the coroutine that runs here: its loop cannot tell it while it is blocked."""


def finish(value: object, *, apart: bool = False) -> object:
    """Return the value, or what it comes to if it is a coroutine: on the worker's event loop, where there is one.

    `apart` is for a coroutine that calls what blocks, and may even finish another: on the worker's loop all the others
    would wait for it, and the other one for ever.
    """
    if not inspect.iscoroutine(value):
        return value
    worker = get_event_loop_thread()
    if not apart and worker is not None and worker.loop.is_running() and worker is not current_thread():
        return _finish_on(worker.loop, value)
    with _a_loop() as loop:
        return _finish_on(loop, value)


def _finish_on(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, object]) -> object:
    """Run a coroutine on a loop in another thread; if this one is interrupted it is canceled, and may clean up."""
    outer, left = _left.get(), Event()
    outcome: Future[object] = Future()
    ended = Lock()
    ended.acquire()
    future = copy_context().run(_start, loop, _kept(coroutine, outcome, ended), left)
    try:
        _wait(loop, ended, outer)
    except BaseException:
        left.set()
        future.cancel()
        if not outcome.done():
            ended.acquire(timeout=_FAREWELL)
        raise
    if not outcome.done():
        raise RuntimeError("the event loop ended before the step's coroutine did")
    try:
        return outcome.result()
    except (CancelledError, asyncio.CancelledError) as error:
        raise RuntimeError("the step's coroutine was canceled from inside") from error


async def _kept(coroutine: Coroutine[Any, Any, object], outcome: Future[object], ended: Lock) -> None:
    try:
        outcome.set_result(await coroutine)
    except BaseException as error:  # a SystemExit would end the loop, and with it the steps of others
        outcome.set_exception(error)
    finally:
        ended.release()


def _start(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None], left: Event) -> Future[None]:
    _left.set(left)
    return asyncio.run_coroutine_threadsafe(coroutine, loop)


def _wait(loop: asyncio.AbstractEventLoop, ended: Lock, outer: Event | None) -> None:
    """Wait for a coroutine, but not for one whose loop has ended, nor on behalf of one that was itself left.

    By a bare lock: an interrupt in the middle of any other means may leave it locked, and the loop waiting for it.
    """
    while not ended.acquire(timeout=_LOOK_UP) and loop.is_running():
        if outer is not None and outer.is_set():
            raise asyncio.CancelledError


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
        with suppress(RuntimeError):  # it has ended by itself: a task of the step's raised SystemExit
            loop.call_soon_threadsafe(enough.set)
        thread.join()


async def awaited(call: Callable[[], T], session: AsyncSession | Session | None) -> T:
    """Make a call that does not await: on its async session if it has one, else in a thread."""
    owner = async_session(session) if isinstance(session, Session) else session
    if owner is None:
        return await asyncio.to_thread(call)
    return await owner.run_sync(lambda _: call())

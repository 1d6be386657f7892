"""The guard: interrupts the body of a step from outside, and never anything else.

An interrupt is an exception that Python raises in another thread. It is only ever sent while that thread is inside
the user's code, and what was sent too late is taken back on the way out: no commit of ours can be hit by it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from threading import Lock, get_ident
from typing import TypeVar
from uuid import UUID

T = TypeVar("T")


class Cause(StrEnum):
    """Why a body is interrupted."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"
    SHUTDOWN = "shutdown"
    LOST = "lost"


class Interrupted(BaseException):
    """Raised in the body of a step that must end. Not an Exception, so that `except Exception` lets it pass."""


class Watch:
    """One claim that this process holds, and the thread that is inside the user's code on its behalf."""

    def __init__(self, token: UUID) -> None:
        self.token = token
        self.cause: Cause | None = None
        self.reason: str | None = None
        self.abandon: Callable[[Cause], None] | None = None
        self._thread: int | None = None
        self._lock = Lock()

    def run(self, call: Callable[[], T]) -> T:
        """Call the user's code, which may be interrupted until it returns.

        Only one interrupt is ever sent. It may arrive as late as on the way out, hence the second way out.
        """
        try:
            try:
                self._enter()
                return call()
            finally:
                self._leave()
        except Interrupted:
            self._leave()
            raise

    def interrupt(self, cause: Cause, reason: str | None = None) -> None:
        """Interrupt the body. Once only: of several causes the first one counts."""
        with self._lock:
            if self.cause is not None:
                return
            self.cause, self.reason = cause, reason
            if self._thread is not None:
                _raise_in(self._thread, Interrupted)

    def _enter(self) -> None:
        with self._lock:
            if self.cause is not None:
                raise Interrupted
            self._thread = get_ident()

    def _leave(self) -> None:
        with self._lock:
            if self._thread is not None:
                _raise_in(self._thread, None)
            self._thread = None


class Guard:
    """The claims that this process holds."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._watches: dict[UUID, Watch] = {}

    @contextmanager
    def holding(self, token: UUID) -> Iterator[Watch]:
        """Keep a claim known from claim to settle: its lease is extended, and its body can be interrupted."""
        watch = Watch(token)
        with self._lock:
            self._watches[token] = watch
        try:
            yield watch
        finally:
            with self._lock:
                del self._watches[token]

    @property
    def held(self) -> list[Watch]:
        """What is held now."""
        with self._lock:
            return list(self._watches.values())


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Have an exception raised in a thread at its next byte code; None takes back what has not been raised yet."""
    given = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), given)
